//! `train`: something of everything for a server that counts what it does.
//!
//! `scripts/release.sh` builds such a server, and the released one from its counts: what it did often is laid out to be
//! fast, what it never did to be small. So every kind of upstream, streamed and whole answers, small and large requests,
//! chains, and each storage engine that is there have their turn.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};

use crate::args::Args;
use crate::children::{Scratch, Server, Store};
use crate::client::{Connection, Job};
use crate::load::{Clients, Until};
use crate::postgres::Database;
use crate::requests::{Scenario, Storage, Wire};

const CONNECTIONS: usize = 16;
/// How many requests each connection makes.
const WORK: [(Scenario, u32); 4] =
    [(Scenario::Plain, 400), (Scenario::Large, 100), (Scenario::Burst, 80), (Scenario::Paced, 1)];
/// One upstream of each kind that is not built in.
const PREFIXES: [&str; 3] = ["chat/", "resp/", "anth/"];
const CHAIN_TURNS: usize = 60;

pub(crate) async fn run(mut args: Args) -> anyhow::Result<()> {
    let amalgam: PathBuf = args.value("--amalgam")?.ok_or_else(|| anyhow!("train needs --amalgam FILE"))?;
    args.finish()?;
    let scratch = Scratch::create()?;
    let mock = Server::start_own("mock", &[]).await?;
    let trainee = TrainedServer { amalgam, scratch, mock };
    trainee.work(Store::File("data")).await.context("on SQLite")?;
    match Database::create()? {
        Some(database) => trainee.work(Store::Url(&database.url)).await.context("on PostgreSQL")?,
        None => eprintln!("train: AMALGAM_BENCH_POSTGRES names no server, so that nothing is learnt on PostgreSQL"),
    }
    Ok(())
}

struct TrainedServer {
    amalgam: PathBuf,
    scratch: Scratch,
    mock: Server,
}

impl TrainedServer {
    async fn work(&self, store: Store<'_>) -> anyhow::Result<()> {
        let server = Server::start_amalgam(&self.amalgam, self.mock.address, &self.scratch.path, store).await?;
        for prefix in PREFIXES {
            for (scenario, requests) in WORK {
                for storage in [Storage::Unstored, Storage::Stored] {
                    let job = Job::with_storage(server.address, prefix, scenario, storage);
                    let mut clients = Clients::open(&job, CONNECTIONS).await?;
                    let tally = clients.closed_loop(&job, Until::Requests(requests), Duration::ZERO).await.checked()?;
                    eprintln!("train: {prefix} {scenario:?}, {storage:?}: {} requests", tally.requests);
                }
            }
            let mut caller = Connection::open(&Job::chained(server.address, prefix, None)).await?;
            caller.turns(server.address, prefix, None, CHAIN_TURNS).await.context("a chain")?;
        }
        for wire in [Wire::Assistant, Wire::Execute] {
            let job = Job::new(server.address, "", Scenario::Plain).on(wire);
            let mut clients = Clients::open(&job, CONNECTIONS).await?;
            let requests = 200_u16;
            if wire == Wire::Execute {
                clients.open_sessions(&job, CONNECTIONS * usize::from(requests)).await?;
            }
            let tally = clients.closed_loop(&job, Until::Requests(requests.into()), Duration::ZERO).await.checked()?;
            eprintln!("train: {wire:?}: {} requests", tally.requests);
        }
        // Counts are written at the end of a process that ends in order.
        server.stop().await
    }
}
