//! A bare group-commit loop: one thread, and one write and one sync for all lines that wait.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc;

use tokio::sync::oneshot;

type Append = (Vec<u8>, oneshot::Sender<()>);

/// A journal that commits in groups.
pub(crate) struct Journal(mpsc::Sender<Append>);

impl Journal {
    /// Starts the writer. Its thread returns the number of syncs at the end.
    pub(crate) fn start(path: &Path) -> (Self, std::thread::JoinHandle<usize>) {
        let mut file = File::create_new(path).expect("a new file");
        let (queue, items) = mpsc::channel::<Append>();
        let write = move || {
            let (mut syncs, mut bytes, mut waiting) = (0, Vec::new(), Vec::new());
            while let Ok(first) = items.recv() {
                for (line, reply) in std::iter::once(first).chain(items.try_iter()) {
                    bytes.extend_from_slice(&line);
                    waiting.push(reply);
                }
                file.write_all(&bytes).expect("room on the disk");
                file.sync_data().expect("a good disk");
                syncs += 1;
                bytes.clear();
                for reply in waiting.drain(..) {
                    let _ = reply.send(());
                }
            }
            syncs
        };
        (Self(queue), std::thread::spawn(write))
    }

    /// Waits until the line is durable.
    pub(crate) async fn append(&self, line: Vec<u8>) {
        let (reply, durable) = oneshot::channel();
        self.0.send((line, reply)).expect("the writer lives as long as its journal");
        durable.await.expect("the writer answers");
    }
}
