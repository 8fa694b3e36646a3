//! The proxy under load: its life, its figures, and what is done to it and its disk.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::server;

/// Where everything is.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
    /// Where the store is: a folder on a small file system of its own, if there is one.
    pub(crate) store: PathBuf,
    pub(crate) has_disk: bool,
    program: String,
    port: u16,
    /// Where operators come in.
    admin: u16,
    /// Its control group, if its memory is limited.
    group: Option<PathBuf>,
}

/// A proxy that runs.
#[derive(Debug)]
pub(crate) struct Proxy {
    child: Child,
    pub(crate) since: Instant,
}

/// What the proxy takes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// KiB of memory.
    pub(crate) rss: u64,
    /// Descriptors.
    pub(crate) files: u64,
    pub(crate) threads: u64,
    /// KiB of the disk that the database takes.
    pub(crate) database: u64,
    pub(crate) results: Results,
}

/// The files of large results, which live as long as their tasks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Results {
    pub(crate) count: u64,
    /// KiB of the disk.
    pub(crate) size: u64,
    /// How old the oldest is.
    pub(crate) oldest: Duration,
}

/// How long a task lives at most, from its creation: its time in the line, its run and `keep` of the config. No run here
/// takes so long that it needs more.
pub(crate) const LIFE: Duration = Duration::from_secs(40 + 40 + 20);

/// A proxy that does not start in this time never will.
const START: Duration = Duration::from_mins(1);

impl Place {
    /// `disk`: a file system of its own for the store. `memory`: how many MiB the proxy may have.
    pub(crate) fn new(program: &str, disk: Option<&str>, memory: Option<u64>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let free = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let [port, admin] = free.map(|free| free.local_addr().unwrap().port());
        let store = disk.map_or_else(|| folder.path().join("store"), |disk| Path::new(disk).join("store"));
        let group = memory.map(|memory| limited(memory << 20));
        let place = Self { store, has_disk: disk.is_some(), program: program.to_owned(), port, admin, group, folder };
        let this = std::env::current_exe().unwrap();
        let without = place.group.as_ref().map(|group| group.with_file_name("cgroup.procs")).unwrap_or_default();
        let words = [this.as_path(), server::WORD.as_ref(), &place.ledger(), &without];
        let command = serde_json::json!(words);
        let text = format!(
            "[listen]\nhttp = \"127.0.0.1:{port}\"\n[admin]\nhttp = \"127.0.0.1:{admin}\"\n[store]\npath = {:?}\nmin_free = 1\ncache = \"16MiB\"\n[log]\nlevel = \"warn\"\n\
             [shutdown]\ngrace = \"2s\"\n[defaults]\nmode = \"sync\"\ntimeout = \"40s\"\nqueue_timeout = \"40s\"\nkeep = \"20s\"\nkey_window = \"20s\"\n\
             [[server]]\nname = \"behind\"\ncommand = {command}\nsession_idle = \"5s\"\n\
             [[tool]]\nmatch = \"auto\"\nmode = \"auto\"\nafter = \"50ms\"\n[[tool]]\nmatch = \"task\"\nmode = \"task\"\n\
             [[tool]]\nmatch = \"queued\"\nmode = \"task\"\nmax_running = 2\n[[tool]]\nmatch = \"broken\"\nmode = \"task\"\n\
             [[tool]]\nmatch = \"again\"\nmode = \"task\"\non_lost = \"rerun\"\n[[tool]]\nmatch = \"ask\"\nmode = \"auto\"\n",
            place.store.display().to_string(),
        );
        fs::write(place.folder.path().join("config.toml"), text).unwrap();
        place
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn ledger(&self) -> PathBuf {
        self.folder.path().join("ledger")
    }

    /// A line for each call that ran.
    pub(crate) fn ran(&self) -> String {
        fs::read_to_string(self.ledger()).unwrap_or_default()
    }

    /// What the proxies said.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Starts the proxy and waits until it takes connections.
    pub(crate) async fn start(&self) -> Proxy {
        let config = self.folder.path().join("config.toml");
        let log = File::options().append(true).create(true).open(self.folder.path().join("log")).unwrap();
        let mut command = match &self.group {
            None => Command::new(&self.program),
            Some(group) => {
                let mut shell = Command::new("sh");
                let enter = format!("echo $$ >{} && exec \"$0\" \"$@\"", group.join("cgroup.procs").display());
                shell.args(["-c", &enter, &self.program]);
                shell
            }
        };
        let mut child =
            command.args(["serve", "--config"]).arg(config).stdin(Stdio::null()).stderr(log).spawn().unwrap();
        let began = Instant::now();
        while tokio::net::TcpStream::connect(self.address()).await.is_err() {
            let ended = child.try_wait().unwrap();
            let log = self.log();
            let tail = log.lines().rev().take(5).collect::<Vec<_>>();
            assert!(ended.is_none() && began.elapsed() < START, "the proxy does not start ({ended:?}): {tail:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Proxy { child, since: Instant::now() }
    }

    /// Fills the disk of the store for that long.
    pub(crate) async fn fill(&self, time: Duration) {
        let ballast = self.store.with_file_name("ballast");
        let mut file = File::create(&ballast).unwrap();
        let free = nix::sys::statvfs::statvfs(&self.store).unwrap();
        // Most of it at once, if nobody else is faster; the rest, and what is given back, by writing.
        let most = (free.blocks_free() * free.fragment_size()).saturating_sub(4 << 20);
        let _ = nix::fcntl::posix_fallocate(&file, 0, most.try_into().unwrap());
        file.seek(SeekFrom::End(0)).unwrap();
        let piece = vec![0; 4 << 10];
        let until = Instant::now() + time;
        while Instant::now() < until {
            if file.write_all(&piece).is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        fs::remove_file(&ballast).unwrap();
    }

    /// Lets no write to the disk of the store end for that long.
    pub(crate) async fn freeze(&self, time: Duration) {
        let disk = self.store.parent().unwrap();
        let freeze = |how| Command::new("fsfreeze").arg(how).arg(disk).status().is_ok_and(|status| status.success());
        if freeze("--freeze") {
            tokio::time::sleep(time).await;
            assert!(freeze("--unfreeze"));
        }
    }

    /// How often the kernel has killed something for want of memory, and MiB at most; `None` without a limit.
    pub(crate) fn pressure(&self) -> Option<(u64, u64)> {
        let group = self.group.as_ref()?;
        let read = |name: &str| fs::read_to_string(group.join(name)).unwrap_or_default();
        let control = read("memory.oom_control") + &read("memory.events");
        let kills = control.lines().find_map(|line| line.strip_prefix("oom_kill ")).unwrap_or("0");
        let peak = read("memory.max_usage_in_bytes") + &read("memory.peak");
        Some((kills.trim().parse().unwrap(), peak.trim().parse::<u64>().unwrap_or_default() >> 20))
    }

    /// Servers that outlive their proxy.
    pub(crate) fn servers_left(&self) -> usize {
        let ledger = self.ledger();
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        lines.filter(|line| line.split(|byte| *byte == 0).nth(2) == Some(ledger.as_os_str().as_encoded_bytes())).count()
    }

    /// How many tasks the proxy says it has in its store; `None` if it does not say.
    pub(crate) async fn tasks(&self) -> Option<u64> {
        let mut connection = tokio::net::TcpStream::connect(("127.0.0.1", self.admin)).await.ok()?;
        connection.write_all(b"GET /metrics HTTP/1.0\r\nhost: localhost\r\n\r\n").await.ok()?;
        let mut text = String::new();
        connection.read_to_string(&mut text).await.ok()?;
        text.lines().find_map(|line| line.strip_prefix("raincheck_store_tasks ")?.parse().ok())
    }

    pub(crate) fn figures(&self, proxy: &Proxy) -> Figures {
        let pid = proxy.child.id();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        let files = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count) as u64;
        let database = fs::metadata(self.store.join("db")).map_or(0, |found| found.blocks() / 2);
        let results = Results::of(&self.store.join("results"));
        Figures { rss: of("VmRSS:"), files, threads: of("Threads:"), database, results }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            let _ = fs::remove_dir(group);
        }
        if self.has_disk {
            let _ = fs::remove_dir_all(&self.store);
        }
    }
}

impl Proxy {
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// Waits for its end; whether that was a good one.
    pub(crate) async fn end(mut self) -> bool {
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.success();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// kill -9 for the servers behind it; how many there were.
    pub(crate) fn kill_servers(&self) -> usize {
        let servers = self.servers();
        servers.iter().filter(|pid| kill(**pid, Signal::SIGKILL).is_ok()).count()
    }

    /// The servers behind it.
    pub(crate) fn servers(&self) -> Vec<Pid> {
        let mut below = vec![self.child.id()];
        let mut processes = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
            let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
            processes.push((pid, parent.unwrap_or(0)));
        }
        processes.sort_unstable();
        // Numbers of processes may have started anew, so a child may come before its parent.
        for _ in 0..3 {
            for (pid, parent) in &processes {
                if below.contains(parent) && !below.contains(pid) {
                    below.push(*pid);
                }
            }
        }
        let is_server = |pid: &u32| {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            command.split(|byte| *byte == 0).nth(1) == Some(server::WORD.as_bytes())
        };
        below.into_iter().skip(1).filter(is_server).map(|pid| Pid::from_raw(pid.try_into().unwrap())).collect()
    }
}

impl Results {
    fn of(folder: &Path) -> Self {
        let (now, mut results) = (SystemTime::now(), Self::default());
        let folders = fs::read_dir(folder).into_iter().flatten().flatten();
        let files = folders.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten().flatten());
        // One that is removed meanwhile is not there.
        for found in files.filter_map(|file| file.metadata().ok()) {
            results.count += 1;
            results.size += found.blocks() / 2;
            let age = now.duration_since(found.modified().unwrap()).unwrap_or_default();
            results.oldest = results.oldest.max(age);
        }
        results
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A control group that may have so many bytes of memory.
fn limited(bytes: u64) -> PathBuf {
    let name = format!("raincheck-soak-{}", std::process::id());
    let old = Path::new("/sys/fs/cgroup/memory");
    let (group, limit) = if old.is_dir() {
        (old.join(name), "memory.limit_in_bytes")
    } else {
        (Path::new("/sys/fs/cgroup").join(name), "memory.max")
    };
    fs::create_dir(&group).and_then(|()| fs::write(group.join(limit), bytes.to_string())).unwrap();
    group
}
