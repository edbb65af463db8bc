//! `make_table OUT.bin GPU CUDNN TORCH RECORDS.jsonl…`: a table from the records of a probe.

use std::error::Error;
use std::path::Path;

use vramwise_workspaces::records::Records;
use vramwise_workspaces::{Facts, Table};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [out, gpu, cudnn, torch, files @ ..] = arguments.as_slice() else {
        return Err("make_table OUT.bin GPU CUDNN TORCH RECORDS.jsonl…".into());
    };
    let mut records = Records::default();
    for file in files {
        let text = std::fs::read_to_string(file)?;
        for (number, line) in text.lines().enumerate() {
            records.add(line).map_err(|e| format!("{file}:{}: {e}", number + 1))?;
        }
    }
    let unclear = records.unclear();
    let builder = records.into_table();
    let facts = Facts { gpu: gpu.clone(), cudnn: cudnn.parse()?, torch: torch.clone() };
    let bytes = builder.to_bytes(&facts)?;
    let temporary = Path::new(out).with_extension("part");
    std::fs::write(&temporary, &bytes)?;
    std::fs::rename(&temporary, out)?;
    let table = Table::from_bytes(&bytes)?;
    let report = format!("{} entries, {unclear} unclear, {} bytes\n", table.len(), bytes.len());
    std::io::Write::write_all(&mut std::io::stdout(), report.as_bytes())?;
    Ok(())
}
