//! `amalgam courses`: a tenant's course catalogue. A running server uses imported courses at once.

mod learners;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use amalgam_administration::seeding::IMPORT_COURSES;
use amalgam_assistant::courses::{self, CourseFile, CourseFormat, RowFault};
use amalgam_core::{
    Operator, Store,
    store::{Course, ImportCounts, Within},
};
use amalgam_knowledge::search;
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::{ConfigArgs, TenantArgs};
use crate::command_context::{CommandContext, now_ms};
use crate::progress::Progress;
use crate::table::table;
use crate::terminal::{print_json, print_object, print_stderr, print_stdout};

/// The batch size for writing courses: large enough to be quick, small enough for visible progress.
const AT_ONCE: usize = 500;
/// The page size for listing courses.
const PAGE: usize = 200;
/// How much of a title is shown.
const TITLE: usize = 60;

#[derive(Debug, Args)]
pub(crate) struct CoursesArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Import the courses of a file; a course replaces the one of the same id
    Import(ImportArgs),
    /// List all available courses, or search results with the best match first
    List(ListArgs),
    /// Print a course, also one that is not offered, as JSON
    Show {
        /// Course number
        #[arg(value_name = "COURSE_ID")]
        id: String,
        #[command(flatten)]
        common: TenantArgs,
    },
    /// Delete courses, with what learners have of them
    Remove {
        /// Course numbers
        #[arg(value_name = "COURSE_ID", required = true)]
        ids: Vec<i64>,
        #[command(flatten)]
        common: TenantArgs,
    },
    /// Import, list and remove what single learners have of courses
    Learners(learners::LearnersArgs),
}

#[derive(Debug, Args)]
struct ImportArgs {
    /// File with courses, .csv or .json
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Tenant id
    #[arg(long = "tenant", value_name = "ID", visible_alias = "company-id")]
    tenant_id: i64,
    /// Import nothing if any row is invalid
    #[arg(long)]
    all_or_nothing: bool,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Tenant id
    #[arg(long = "tenant", value_name = "ID", visible_alias = "company-id")]
    tenant_id: i64,
    /// Search text
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: CoursesArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Import(args) => import(args).await,
        Action::List(args) => list(args).await,
        Action::Show { id, common } => {
            let (context, scope) = CommandContext::read_tenant(&common).await?;
            print_object(&context.administration().course(&scope, &id).await?)?;
            Ok(ExitCode::SUCCESS)
        }
        Action::Remove { ids, common } => remove(&ids, &common).await,
        Action::Learners(args) => learners::run(args).await,
    }
}

async fn remove(ids: &[i64], common: &TenantArgs) -> anyhow::Result<ExitCode> {
    let (context, scope) = CommandContext::open_tenant(common).await?;
    let body = json!({"delete": ids}).to_string().into();
    let changes = context.administration().change_courses(&scope, &body).await?;
    match common.json {
        true => print_object(&changes)?,
        false => print_stdout(format_args!("{} deleted", changes.deleted))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Invalid rows make the command fail even if the valid ones were imported, so that scripts notice them.
async fn import(args: ImportArgs) -> anyhow::Result<ExitCode> {
    let shown = args.file.display();
    let format = CourseFormat::of(&args.file).with_context(|| format!("{shown} is neither .csv nor .json"))?;
    let bytes = fs::read(&args.file).with_context(|| format!("reading {shown}"))?;
    let contents = courses::read(&bytes, format);
    let bad = contents.faults.len() + contents.omitted;
    let context = CommandContext::open(args.config).await?;
    if context.store.tenant(Operator::of_this_process(), args.tenant_id).await?.is_none() {
        bail!("there is no tenant {}", args.tenant_id);
    }
    let imported = match args.all_or_nothing && bad > 0 {
        true => ImportCounts::default(),
        false => {
            let at_once = if args.all_or_nothing { usize::MAX } else { AT_ONCE };
            let details = json!({"courses": contents.courses.len()});
            let file = args.file.display().to_string();
            context.administration().announce(args.tenant_id, IMPORT_COURSES, &file, &details).await?;
            write(&*context.store, args.tenant_id, &contents.courses, at_once).await?
        }
    };
    match args.json {
        true => print_json(&as_json(&imported, &contents))?,
        false => {
            print_faults(&args.file, &contents);
            if args.all_or_nothing && bad > 0 {
                print_stderr("nothing was imported");
            }
            let ImportCounts { created, updated, unchanged } = imported;
            print_stdout(format_args!("{created} created, {updated} updated, {unchanged} unchanged, {bad} bad"))?;
        }
    }
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::from(crate::FAILURE) })
}

async fn write(store: &dyn Store, tenant_id: i64, courses: &[Course], at_once: usize) -> anyhow::Result<ImportCounts> {
    let within = Within::Named(Operator::of_this_process(), tenant_id);
    let mut progress = Progress::of("courses", courses.len());
    let mut all = ImportCounts::default();
    for part in courses.chunks(at_once) {
        let imported = store.put_courses(within, part.to_vec(), now_ms()).await?;
        let imported = imported.with_context(|| format!("there is no tenant {tenant_id}"))?;
        all.created += imported.created;
        all.updated += imported.updated;
        all.unchanged += imported.unchanged;
        progress.add(part.len());
    }
    Ok(all)
}

fn print_faults(file: &Path, contents: &CourseFile) {
    for fault in &contents.faults {
        print_stderr(format_args!("{}: {fault}", file.display()));
    }
    if contents.omitted > 0 {
        print_stderr(format_args!("{}: and {} more", file.display(), contents.omitted));
    }
}

async fn list(args: ListArgs) -> anyhow::Result<ExitCode> {
    let context = CommandContext::open_read_only(args.config).await?;
    context.administrator(args.tenant_id).await?;
    let within = Within::Named(Operator::of_this_process(), args.tenant_id);
    let words = args.query.as_deref().map(search::words).unwrap_or_default();
    let mut found: Vec<Course> = Vec::new();
    loop {
        let page = context.store.search_courses_within(within, &words, found.len() as u64, PAGE).await?;
        let last = page.courses.len() < PAGE;
        found.extend(page.courses);
        if last {
            break;
        }
    }
    match args.json {
        true => print_json(&json!({"object": "list", "data": found.iter().map(course_as_json).collect::<Vec<_>>()}))?,
        false => print_stdout(as_table(&found))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn as_table(courses: &[Course]) -> String {
    let row = |course: &Course| {
        [
            course.id.to_string(),
            shortened(&course.title),
            course.kind.clone(),
            course.modality.clone(),
            course.tags.join(", "),
        ]
    };
    table(["id", "title", "type", "modality", "tags"], &courses.iter().map(row).collect::<Vec<_>>())
}

fn shortened(title: &str) -> String {
    match title.char_indices().nth(TITLE) {
        Some((end, _)) => format!("{}…", title.split_at(end).0.trim_end()),
        None => title.to_owned(),
    }
}

fn as_json(imported: &ImportCounts, contents: &CourseFile) -> Value {
    let fault = |fault: &RowFault| json!({"line": fault.line, "reason": fault.reason});
    json!({
        "created": imported.created,
        "updated": imported.updated,
        "unchanged": imported.unchanged,
        "bad": contents.faults.len() + contents.omitted,
        "faults": contents.faults.iter().map(fault).collect::<Vec<_>>(),
    })
}

/// A course with the field names of a file of courses.
fn course_as_json(course: &Course) -> Value {
    json!({
        "id": course.id,
        "title": course.title,
        "description": course.description,
        "modality": course.modality,
        "type": course.kind,
        "status": course.status,
        "content_in_sequence": course.content_in_sequence,
        "min_percentage_finish": course.min_percentage_finish,
        "tags": course.tags,
        "assets": course.assets,
        "url": course.url,
        "progress": course.progress,
        "is_eligible": course.is_eligible,
        "in_playlist": course.in_playlist,
        "active": course.active,
    })
}
