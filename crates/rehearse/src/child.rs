//! Running the program: its streams, its signals, its end.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::process::{Command, ExitStatus, Stdio};
#[cfg(unix)]
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use std::thread;
use std::time::{Duration, Instant};

#[cfg(unix)]
use crate::room;

/// Where what the program prints goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// Where this program's own output goes.
    Through,
    /// Both to this program's standard error.
    ToStderr,
    /// Into a file of the session.
    Hidden,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its exit status; 128 + the signal's number where a signal ended it, as shells have it.
    pub status: u8,
    /// Whether it was ended at its time limit.
    pub timed_out: bool,
    /// The first signal by which this process was asked to stop while it ran.
    pub signal: Option<u8>,
    /// Seconds that it ran, in milliseconds.
    pub milliseconds: u64,
}

impl Ended {
    /// Whether this process was asked to stop while the program ran.
    pub fn interrupted(&self) -> bool {
        self.signal.is_some()
    }
}

/// Between asking a program to end and ending it.
const GRACE: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(10);

/// Starts the command, hands signals on to it and waits.
pub(crate) fn run(
    command: Command,
    streams: Streams,
    log: Option<File>,
    limit: Option<Duration>,
) -> io::Result<Ended> {
    run_watched(command, streams, log, limit, &mut || {})
}

/// As [`run`]; `watch` is called many times a second meanwhile.
pub(crate) fn run_watched(
    mut command: Command,
    streams: Streams,
    log: Option<File>,
    limit: Option<Duration>,
    watch: &mut dyn FnMut(),
) -> io::Result<Ended> {
    match (streams, log) {
        (Streams::Through, _) => {}
        (Streams::Hidden, Some(log)) => {
            command.stdout(log.try_clone()?).stderr(log);
        }
        (Streams::ToStderr | Streams::Hidden, _) => {
            command.stdout(stderr()?);
        }
    }
    let mut signals = Signals::new()?;
    // What a terminal sends goes to the whole group of processes, the program among them; told twice, it
    // would be interrupted while it writes what it recorded.
    let at_terminal = io::stdin().is_terminal() || io::stderr().is_terminal();
    let started = Instant::now();
    let mut child = command.spawn()?;
    let mut asked: Option<Instant> = None;
    let (mut timed_out, mut killed, mut stop) = (false, false, None);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        for signal in signals.pending() {
            if stop.is_some() && FROM_TERMINAL.contains(&signal) {
                // Who asks twice does not want to wait.
                child.kill()?;
                killed = true;
            }
            let ending = u8::try_from(signal).ok().filter(|_| ENDING.contains(&signal));
            stop = stop.or(ending);
            if !(at_terminal && FROM_TERMINAL.contains(&signal)) {
                hand_on(child.id(), signal);
            }
        }
        if asked.is_none() && limit.is_some_and(|limit| started.elapsed() >= limit) {
            timed_out = true;
            asked = Some(Instant::now());
            hand_on(child.id(), TERMINATE);
        }
        if asked.is_some_and(|asked| asked.elapsed() >= GRACE) {
            child.kill()?;
        }
        watch();
        thread::sleep(TICK);
    };
    let milliseconds = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    // The last signals may have come together with the program's end.
    let last = signals.pending().into_iter().find(|signal| ENDING.contains(signal));
    let stop = stop.or(last.and_then(|signal| u8::try_from(signal).ok()));
    // Whatever the program made of it, it was not left to run to its end; and what runs while Python ends can make
    // it forget what it was ended by, so that it says 1.
    let status = match (code(status), stop) {
        (0, Some(signal)) => 128 + signal,
        (_, Some(signal)) if killed => 128 + signal,
        (1, Some(signal)) if FROM_TERMINAL.contains(&i32::from(signal)) => 128 + signal,
        (status, _) => status,
    };
    Ok(Ended { status, timed_out, signal: stop, milliseconds })
}

#[cfg(unix)]
fn stderr() -> io::Result<Stdio> {
    use std::os::fd::AsFd as _;
    Ok(Stdio::from(io::stderr().as_fd().try_clone_to_owned()?))
}

#[cfg(not(unix))]
fn stderr() -> io::Result<Stdio> {
    Ok(Stdio::inherit())
}

#[cfg(unix)]
fn code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(255)
}

#[cfg(not(unix))]
fn code(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(255)
}

/// Asks a program to end; the numbers of these signals are the same on every Unix.
const TERMINATE: i32 = 15;
/// Interrupt, quit: keys of a terminal.
const FROM_TERMINAL: [i32; 2] = [2, 3];
/// Signals after which nothing more is to be started: hang-up, interrupt, quit, terminate.
const ENDING: [i32; 4] = [1, 2, 3, 15];

/// The signals that are handed on while a program runs.
#[cfg(unix)]
struct Signals(signal_hook::iterator::Signals);

/// Whether no program runs: then the signals that end this one do so, as they did before any was handed on.
#[cfg(unix)]
static IDLE: AtomicBool = AtomicBool::new(true);

/// From now on, a signal that ends this process while no program runs takes along what nobody was told of.
#[cfg(unix)]
pub(crate) fn end_tidily() -> io::Result<()> {
    static STARTED: Mutex<bool> = Mutex::new(false);
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*started {
        let mut signals = signal_hook::iterator::Signals::new(ENDING)?;
        let end = move || {
            for signal in signals.forever() {
                if IDLE.load(Ordering::SeqCst) {
                    room::remove_untold();
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
            }
        };
        thread::Builder::new().name("signals".to_owned()).spawn(end)?;
        *started = true;
    }
    Ok(())
}

#[cfg(not(unix))]
pub(crate) fn end_tidily() -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use signal_hook::consts::{SIGUSR1, SIGUSR2};
        end_tidily()?;
        let all = ENDING.into_iter().chain([SIGUSR1, SIGUSR2]);
        let signals = signal_hook::iterator::Signals::new(all)?;
        IDLE.store(false, Ordering::SeqCst);
        Ok(Self(signals))
    }

    fn pending(&mut self) -> Vec<i32> {
        self.0.pending().collect()
    }
}

#[cfg(unix)]
impl Drop for Signals {
    fn drop(&mut self) {
        IDLE.store(true, Ordering::SeqCst);
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    fn pending(&mut self) -> Vec<i32> {
        Vec::new()
    }
}

#[cfg(unix)]
fn hand_on(process: u32, signal: i32) {
    let process = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
    if let (Some(process), Some(signal)) =
        (process, rustix::process::Signal::from_named_raw(signal))
    {
        // It may have ended meanwhile.
        let _ = rustix::process::kill_process(process, signal);
    }
}

#[cfg(not(unix))]
fn hand_on(_process: u32, _signal: i32) {}
