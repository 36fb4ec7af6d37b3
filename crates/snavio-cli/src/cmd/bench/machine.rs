//! What the machine says of itself, read from `/proc`: what it is, how busy it was, and with whom.

use std::collections::HashMap;
use std::io::{Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{clock, process};

/// Flushes that are timed to tell how quick the disk is.
const FLUSHES: usize = 200;
/// Bytes written before each.
const FLUSH_BYTES: usize = 160;

/// The machine a report was made on.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Machine {
    pub(super) cores: usize,
    pub(super) processor: String,
    pub(super) kernel: String,
    pub(super) memory_mib: u64,
    /// Median time of a small append and its flush, in the folder the stores are in.
    pub(super) flush_micros: u64,
}

impl Machine {
    /// Looks at the machine, and flushes a file in `folder` a few times.
    pub(super) fn look(folder: &Path) -> std::io::Result<Self> {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        let member = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = member(&text("/proc/meminfo"), "MemTotal");
        let memory = memory.and_then(|it| it.split(' ').next()?.parse::<u64>().ok());
        Ok(Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: member(&text("/proc/cpuinfo"), "model name").unwrap_or_default(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            memory_mib: memory.unwrap_or(0) / 1024,
            flush_micros: flush_micros(folder)?,
        })
    }
}

fn flush_micros(folder: &Path) -> std::io::Result<u64> {
    let mut file = tempfile::tempfile_in(folder)?;
    // Written first, so that a flush is of data alone and not of a growing file.
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

/// Processor time of one process; nothing when it is gone.
pub(super) fn processor_time(pid: u32) -> Option<Duration> {
    Stat::read(pid).map(|stat| ticks(stat.own))
}

/// Resident memory of a process in bytes.
pub(super) fn resident_bytes(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Tells how busy the machine was with others while something ran.
pub(super) struct Watch {
    began: Instant,
    machine: Duration,
    stolen: Duration,
    ours: Duration,
}

/// How busy the machine was, in percent of all its cores.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Busy {
    /// With processes that are not part of the benchmark.
    pub(super) others_percent: f64,
    /// With other machines on the same host.
    pub(super) stolen_percent: f64,
}

impl Watch {
    pub(super) fn start() -> Self {
        let (machine, stolen) = machine_times();
        Self { began: clock::now(), machine, stolen, ours: family_time(&process::ours()) }
    }

    pub(super) fn busy(&self) -> Busy {
        let (machine, stolen) = machine_times();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let room = self.began.elapsed().as_secs_f64() * cores as f64;
        let ours = family_time(&process::ours()).saturating_sub(self.ours);
        let others = machine.saturating_sub(self.machine).saturating_sub(ours);
        let percent = |time: Duration| (time.as_secs_f64() / room * 1000.0).round() / 10.0;
        Busy { others_percent: percent(others), stolen_percent: percent(stolen.saturating_sub(self.stolen)) }
    }
}

/// Time that processes have used on this machine, and time that was not given to it.
fn machine_times() -> (Duration, Duration) {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let fields: Vec<u64> = line.split_whitespace().skip(1).filter_map(|it| it.parse().ok()).collect();
    let field = |at: usize| fields.get(at).copied().unwrap_or(0);
    // user, nice, system; then idle, iowait, irq, softirq, steal
    (ticks(field(0) + field(1) + field(2)), ticks(field(7)))
}

/// Processor time of processes, their children and theirs, those that have ended included.
pub(super) fn family_time(roots: &[u32]) -> Duration {
    let stats: HashMap<u32, Stat> = processes().filter_map(|pid| Some((pid, Stat::read(pid)?))).collect();
    let within = |mut pid: u32| {
        while !roots.contains(&pid) {
            match stats.get(&pid) {
                Some(stat) if stat.parent != 0 => pid = stat.parent,
                _ => return false,
            }
        }
        true
    };
    ticks(stats.iter().filter(|(pid, _)| within(**pid)).map(|(_, stat)| stat.own + stat.ended_children).sum())
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// What `/proc/<pid>/stat` says, times in ticks.
struct Stat {
    parent: u32,
    own: u64,
    ended_children: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name stands in parentheses and may hold anything.
        let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
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
    fn a_process_is_told_whatever_its_name() {
        let text = "7 (a) b (c)) S 3 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 5 6 7";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.parent, stat.own, stat.ended_children), (3, 30, 70));
    }

    #[test]
    fn this_process_has_memory_and_time() {
        assert!(resident_bytes(std::process::id()).unwrap() > 0);
        assert!(processor_time(std::process::id()).is_some());
        let own = processor_time(std::process::id()).unwrap();
        assert!(family_time(&[std::process::id()]) >= own);
    }
}
