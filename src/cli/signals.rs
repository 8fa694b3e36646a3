//! Signals: the first asks the proxy to stop, the second ends it.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::exit;

/// Resolves when the process is asked to stop.
pub(super) struct Shutdown(oneshot::Receiver<()>);

/// SIGTERM and SIGINT, one after the other.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    last: Received,
}

/// A signal that came.
#[derive(Clone, Copy, Debug)]
pub(super) enum Received {
    Terminate,
    Interrupt,
}

impl Shutdown {
    /// Resolves with the first SIGTERM or SIGINT. From then on a second one ends the process at once; the store
    /// is made for that.
    pub(super) fn of_process() -> io::Result<Self> {
        let mut signals = Signals::of_process()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (asked, shutdown) = oneshot::channel();
        // On a thread of its own, so that it works when every worker is stuck, and when nobody waits for the first.
        std::thread::Builder::new().name("raincheck-signals".to_owned()).spawn(move || {
            let received = runtime.block_on(signals.next());
            tracing::info!(
                signal = received.name(),
                "stopping: running calls may end within the grace time; a second signal ends at once"
            );
            let _ = asked.send(());
            let received = runtime.block_on(signals.next());
            tracing::warn!(signal = received.name(), "ended at once; what was running is recorded at the next start");
            std::process::exit(received.code().into());
        })?;
        Ok(Self(shutdown))
    }
}

impl Signals {
    /// From now on the signals do not end the process by themselves.
    pub(super) fn of_process() -> io::Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, last: Received::Interrupt })
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) -> Received {
        self.last = tokio::select! {
            _ = self.terminate.recv() => Received::Terminate,
            _ = self.interrupt.recv() => Received::Interrupt,
        };
        self.last
    }

    /// What a process exits with that the last one has ended.
    pub(super) const fn code(&self) -> u8 {
        self.last.code()
    }
}

impl Received {
    const fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Terminate => exit::TERMINATED,
            Self::Interrupt => exit::INTERRUPTED,
        }
    }
}

impl Future for Shutdown {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // The thread ends without a word only by a panic; then no signal is seen any more.
        Pin::new(&mut self.0).poll(context).map(|_| ())
    }
}

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shutdown")
    }
}
