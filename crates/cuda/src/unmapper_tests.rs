use super::*;

const PAGE: u64 = 2 << 20;
/// So long that the thread never comes to work in a test.
const NEVER: Duration = Duration::from_secs(3600);

/// Ranges whose mapping was taken away, in order, and an answer for each call.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Calls>>);

type Calls = (Vec<(u64, u64)>, Code);

impl Log {
    fn unmapper(&self, quiet: Duration) -> Unmapper {
        let log = self.clone();
        let unmap = move |addr, bytes| {
            let mut log = lock(&log.0);
            if log.1 == 0 {
                log.0.push((addr, bytes));
            }
            log.1
        };
        Unmapper::with_quiet(Box::new(unmap), quiet)
    }

    fn gone(&self) -> Vec<(u64, u64)> {
        lock(&self.0).0.clone()
    }

    fn answer(&self, code: Code) {
        lock(&self.0).1 = code;
    }
}

#[test]
fn the_thread_takes_them_away_once_it_is_quiet() {
    let log = Log::default();
    let unmapper = log.unmapper(Duration::from_millis(1));
    unmapper.later(4 * PAGE, PAGE);
    unmapper.later(9 * PAGE, 2 * PAGE);
    let start = Instant::now();
    while log.gone().len() < 2 && start.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(log.gone(), [(4 * PAGE, PAGE), (9 * PAGE, 2 * PAGE)]);
    assert_eq!(unmapper.cost().count, 2);
}

#[test]
fn an_address_is_cleared_before_something_is_mapped_there() {
    let log = Log::default();
    let unmapper = log.unmapper(NEVER);
    for page in [1, 2, 6, 8] {
        unmapper.later(page * PAGE, if page == 2 { 4 * PAGE } else { PAGE });
    }
    // Touches the second and the third: their whole ranges go, the others stay.
    let seen = unmapper.alone_at(5 * PAGE, 2 * PAGE, || {
        assert_eq!(log.gone(), [(6 * PAGE, PAGE), (2 * PAGE, 4 * PAGE)]);
        0
    });
    assert_eq!(seen, Ok(()));
    // Beside an old mapping nothing has to go.
    assert_eq!(unmapper.alone_at(2 * PAGE, 6 * PAGE, || 0), Ok(()));
    assert_eq!(log.gone().len(), 2);
    unmapper.finish();
    assert_eq!(log.gone()[2..], [(PAGE, PAGE), (8 * PAGE, PAGE)]);
}

#[test]
fn what_the_driver_refuses_stays_and_is_told() {
    let log = Log::default();
    let unmapper = log.unmapper(NEVER);
    unmapper.later(PAGE, PAGE);
    log.answer(999);
    unmapper.finish();
    assert_eq!(unmapper.alone_at(PAGE, PAGE, || 0), Err(999));
    assert_eq!(unmapper.alone_at(3 * PAGE, PAGE, || 2), Err(2));
    log.answer(0);
    assert_eq!(unmapper.alone_at(PAGE, PAGE, || 0), Ok(()));
    assert_eq!(log.gone(), [(PAGE, PAGE)]);
}

#[test]
fn no_more_than_a_bounded_number_waits() {
    let log = Log::default();
    let unmapper = log.unmapper(NEVER);
    for page in 0..MOST as u64 + 3 {
        unmapper.later(page * PAGE, PAGE);
    }
    assert_eq!(log.gone().len(), 3);
}

#[test]
fn nothing_is_called_once_the_process_ends() {
    let log = Log::default();
    let unmapper = log.unmapper(NEVER);
    unmapper.later(PAGE, PAGE);
    unmapper.0.ended.store(true, Ordering::Release);
    unmapper.finish();
    drop(unmapper);
    assert_eq!(log.gone(), []);
}

#[test]
fn an_unmapper_that_is_dropped_leaves_nothing() {
    let log = Log::default();
    let unmapper = log.unmapper(NEVER);
    unmapper.later(PAGE, PAGE);
    drop(unmapper);
    assert_eq!(log.gone(), [(PAGE, PAGE)]);
}

/// What a driver would say: one call at a time, and nothing mapped twice.
#[derive(Default)]
struct Table {
    busy: AtomicBool,
    mapped: Mutex<std::collections::BTreeSet<u64>>,
    wrong: AtomicBool,
}

impl Table {
    fn call(&self, change: impl FnOnce(&mut std::collections::BTreeSet<u64>) -> bool) -> Code {
        let alone = !self.busy.swap(true, Ordering::SeqCst);
        std::hint::black_box(());
        let changed = change(&mut lock(&self.mapped));
        self.busy.store(false, Ordering::SeqCst);
        if !alone || !changed {
            self.wrong.store(true, Ordering::SeqCst);
        }
        0
    }
}

#[test]
fn calls_are_made_one_at_a_time_and_nothing_is_mapped_over_an_old_mapping() {
    let table = Arc::new(Table::default());
    let unmap = {
        let table = Arc::clone(&table);
        move |addr, _bytes| table.call(|mapped| mapped.remove(&addr))
    };
    let unmapper = Unmapper::with_quiet(Box::new(unmap), Duration::ZERO);
    // A fixed walk over 64 pages: a page that is mapped is given up, another one is mapped.
    let (mut ours, mut seed) = ([false; 64], 1u64);
    for _ in 0..20_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let page = (seed >> 58) as usize;
        let addr = page as u64 * PAGE;
        if ours[page] {
            unmapper.later(addr, PAGE);
        } else {
            let map = || table.call(|mapped| mapped.insert(addr));
            assert_eq!(unmapper.alone_at(addr, PAGE, map), Ok(()));
        }
        ours[page] = !ours[page];
        if seed >> 40 & 0xff == 0 {
            unmapper.finish();
            let expected = ours.iter().filter(|mapped| **mapped).count();
            assert_eq!(lock(&table.mapped).len(), expected);
        }
    }
    assert!(!table.wrong.load(Ordering::SeqCst));
}
