//! A proxy between a store and its server, which loses messages on request.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// What is lost on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Loses {
    Nothing,
    /// Everything that is asked.
    Requests,
    /// Every answer.
    Answers,
    /// What asks for a commit; what came before it arrives.
    Commits,
    /// Every answer from the one to a commit on.
    AnswersToCommits,
}

pub(super) struct Proxy {
    url: String,
    loses: Arc<AtomicU8>,
    lost: Arc<AtomicU64>,
    cut: watch::Sender<u64>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// To the server at `url`, whose host and port it takes the place of.
    pub(super) async fn to(url: &str) -> Self {
        let (credentials, rest) = url.split_once('@').unwrap();
        let (server, database) = rest.split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let loses = Arc::new(AtomicU8::new(Loses::Nothing as u8));
        let lost = Arc::new(AtomicU64::new(0));
        let (cut, cuts) = watch::channel(0);
        let mut tasks = JoinSet::new();
        let server = server.to_owned();
        let (told, counted) = (Arc::clone(&loses), Arc::clone(&lost));
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                connections.spawn(pass(client, server, Arc::clone(&told), Arc::clone(&counted), cuts.clone()));
            }
        });
        let url = format!("{credentials}@127.0.0.1:{port}/{database}");
        Self { url, loses, lost, cut, _tasks: tasks }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn lose(&self, what: Loses) {
        self.loses.store(what as u8, Ordering::SeqCst);
    }

    /// Pieces that were lost so far.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::SeqCst)
    }

    /// Ends every connection that there is; new ones lose nothing.
    pub(super) fn cut(&self) {
        self.lose(Loses::Nothing);
        self.cut.send_modify(|cuts| *cuts += 1);
    }
}

async fn pass(
    client: TcpStream,
    server: TcpStream,
    loses: Arc<AtomicU8>,
    lost: Arc<AtomicU64>,
    mut cuts: watch::Receiver<u64>,
) {
    cuts.mark_unchanged();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let committing = AtomicBool::new(false);
    let loses = || loses.load(Ordering::SeqCst);
    let requests = async {
        let mut piece = [0; 16 * 1024];
        while let Ok(length @ 1..) = from_client.read(&mut piece).await {
            let piece = &piece[..length];
            let commits = piece.windows(7).any(|part| part == b"COMMIT\0");
            committing.store(commits, Ordering::SeqCst);
            if loses() == Loses::Requests as u8 || (commits && loses() == Loses::Commits as u8) {
                lost.fetch_add(1, Ordering::SeqCst);
            } else if to_server.write_all(piece).await.is_err() {
                return;
            }
        }
    };
    let answers = async {
        let mut piece = [0; 16 * 1024];
        while let Ok(length @ 1..) = from_server.read(&mut piece).await {
            let to_commit = loses() == Loses::AnswersToCommits as u8 && committing.load(Ordering::SeqCst);
            if loses() == Loses::Answers as u8 || to_commit {
                lost.fetch_add(1, Ordering::SeqCst);
            } else if to_client.write_all(&piece[..length]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = requests => {}
        () = answers => {}
        _ = cuts.changed() => {}
    }
}
