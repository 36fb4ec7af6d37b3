//! Facts about the machine, read from `/proc`: its hardware, its load, and the processor time of processes.

use std::collections::HashMap;
use std::io::{Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{clock, process};

/// The number of flushes for measuring the disk.
const FLUSHES: usize = 200;
/// Bytes written before each flush.
const FLUSH_BYTES: usize = 160;

/// The machine of a report.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Machine {
    pub(super) cores: usize,
    pub(super) processor: String,
    pub(super) kernel: String,
    pub(super) memory_mib: u64,
    /// The median time of a small append with its flush, in the folder of the stores.
    pub(super) flush_micros: u64,
}

impl Machine {
    /// Reads the facts about the machine, and measures flushes in `folder`.
    pub(super) fn inspect(folder: &Path) -> std::io::Result<Self> {
        let memory = read_proc_value("/proc/meminfo", "MemTotal");
        let memory = memory.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        Ok(Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: read_proc_value("/proc/cpuinfo", "model name").unwrap_or_default(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            memory_mib: memory.unwrap_or(0) / 1024,
            flush_micros: measure_flush(folder)?,
        })
    }
}

/// The value of the first line `name: value` in a file of `/proc`.
fn read_proc_value(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn measure_flush(folder: &Path) -> std::io::Result<u64> {
    let mut file = tempfile::tempfile_in(folder)?;
    // The file gets its full size first, so that a flush writes only data and no new file size.
    file.write_all(&vec![0; FLUSHES * FLUSH_BYTES])?;
    file.sync_all()?;
    file.rewind()?;
    let mut micros = Vec::with_capacity(FLUSHES);
    for _ in 0..FLUSHES {
        let began = clock::now();
        file.write_all(&[1; FLUSH_BYTES])?;
        file.sync_data()?;
        micros.push(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    micros.sort_unstable();
    Ok(micros[FLUSHES / 2])
}

/// Processor time of one process; none if it has ended.
pub(super) fn processor_time(pid: u32) -> Option<Duration> {
    ProcessStat::read(pid).map(|stat| ticks(stat.own))
}

/// Resident memory of a process in bytes.
pub(super) fn resident_bytes(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Measures the load of the machine by other processes during a round.
pub(super) struct LoadWatch {
    began: Instant,
    machine: Duration,
    stolen: Duration,
    benchmark: Duration,
}

/// The load of the machine in percent of all its cores.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct MachineLoad {
    /// By processes that are not part of the benchmark.
    pub(super) others_percent: f64,
    /// By other virtual machines on the same host.
    pub(super) stolen_percent: f64,
}

impl LoadWatch {
    pub(super) fn start() -> Self {
        let (machine, stolen) = machine_times();
        Self { began: clock::now(), machine, stolen, benchmark: family_time(&process::benchmark_roots()) }
    }

    pub(super) fn busy(&self) -> MachineLoad {
        let (machine, stolen) = machine_times();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let capacity = self.began.elapsed().as_secs_f64() * cores as f64;
        let benchmark = family_time(&process::benchmark_roots()).saturating_sub(self.benchmark);
        let others = machine.saturating_sub(self.machine).saturating_sub(benchmark);
        let percent = |time: Duration| (time.as_secs_f64() / capacity * 1000.0).round() / 10.0;
        MachineLoad {
            others_percent: percent(others),
            stolen_percent: percent(stolen.saturating_sub(self.stolen)),
        }
    }
}

/// Processor time that processes have used on this machine, and time that its host gave to other virtual
/// machines.
fn machine_times() -> (Duration, Duration) {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let fields: Vec<u64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    let field = |index: usize| fields.get(index).copied().unwrap_or(0);
    // The fields are user, nice, system, idle, iowait, irq, softirq, steal.
    (ticks(field(0) + field(1) + field(2)), ticks(field(7)))
}

/// Processor time of processes and all their descendants, including children that have ended.
pub(super) fn family_time(roots: &[u32]) -> Duration {
    let stats = process_ids().filter_map(|pid| Some((pid, ProcessStat::read(pid)?)));
    let stats: HashMap<u32, ProcessStat> = stats.collect();
    let family = stats.iter().filter(|(pid, _)| is_descendant(**pid, roots, &stats));
    ticks(family.map(|(_, stat)| stat.own + stat.ended_children).sum())
}

/// Whether a process is one of the roots or has one of them as an ancestor.
fn is_descendant(mut pid: u32, roots: &[u32], stats: &HashMap<u32, ProcessStat>) -> bool {
    while !roots.contains(&pid) {
        match stats.get(&pid) {
            Some(stat) if stat.parent != 0 => pid = stat.parent,
            _ => return false,
        }
    }
    true
}

fn process_ids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Fields of `/proc/<pid>/stat`, with times in ticks.
struct ProcessStat {
    parent: u32,
    own: u64,
    ended_children: u64,
}

impl ProcessStat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name of the process is in parentheses and may contain any character, also parentheses.
        let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            parent: u32::try_from(number(1)?).ok()?,
            own: number(11)? + number(12)?,
            ended_children: number(13)? + number(14)?,
        })
    }
}

fn ticks(count: u64) -> Duration {
    Duration::from_secs_f64(count as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_name_may_contain_parentheses() {
        let text = "7 (a) b (c)) S 3 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 5 6 7";
        let stat = ProcessStat::parse(text).unwrap();
        assert_eq!((stat.parent, stat.own, stat.ended_children), (3, 30, 70));
    }

    #[test]
    fn own_process_has_memory_and_time() {
        assert!(resident_bytes(std::process::id()).unwrap() > 0);
        assert!(processor_time(std::process::id()).is_some());
        let own = processor_time(std::process::id()).unwrap();
        assert!(family_time(&[std::process::id()]) >= own);
    }
}
