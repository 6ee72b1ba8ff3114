//! `slidegate replay`: what policies would have done to the requests of an access log.

mod progress;
mod sweep;

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, bail};
use slidegate_replay::{
    AccessLog, AccessLogFormat, FieldMapping, FormatChoice, Replay, ReplayReport,
};

use self::progress::ProgressBar;
use self::sweep::SweepRange;
use crate::config::{self, Flags, LimiterConfig, Sources};
use crate::terminal;

pub(crate) const AFTER_HELP: &str = "\
The requests of the logs are decided in virtual time, with accounts in memory, by the very code that
decides in production. Nothing is connected to. Logs may be compressed by gzip or zstd, and several
are merged by time; - is standard input. API keys and other secrets are shown as digests, as
everywhere.

The format of a log is found by its first lines, or named:
  --format     combined (nginx, Apache, Traefik), common, caddy, traefik-json, envoy, alb, slidegate,
               audit, csv or json
  --log-format nginx's own, such as '$remote_addr [$time_local] \"$request\" $status $http_x_plan'

--map names the field that is the user, the plan, an API key, the cost, the status or cost of the
response, or a header that policies read: a variable of --log-format, a column of CSV, or a path in JSON such as request.user.id.

Exit codes:
  0  the logs have been replayed
  1  more is refused than --fail-above allows, or the configuration or a log cannot be read
  2  the command line is wrong

Examples:
  slidegate replay --config candidate.toml access.log access.log.1 access.log.2.gz
  slidegate replay --config candidate.toml --against slidegate.toml --fail-above 0.1% access.log
  slidegate replay --config candidate.toml --sweep 'api=10/min..1000/min' --html report.html access.log
  slidegate replay --config candidate.toml --map user=user_id --map plan=tier requests.csv
  zcat access.log.*.gz | slidegate replay --config candidate.toml --json - | jq .refused";

/// Arguments of `slidegate replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArguments {
    /// The configuration to try, or - for standard input
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,

    /// The logs, or - for standard input
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,

    /// The format of the logs [default: found by the first lines of each]
    #[arg(long, value_name = "NAME", conflicts_with = "log_format", hide_possible_values = true)]
    format: Option<AccessLogFormat>,

    /// The format of the logs, as nginx's log_format has it
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,

    /// Says what a field of the log is, such as user=user_id or header:x-tenant=tenant; repeat it for
    /// several
    ///
    /// The uses are time, client, request, method, path, user, plan, cost, status, response-cost,
    /// api-key, authorization, forwarded-for and header:NAME.
    #[arg(long, value_name = "USE=FIELD")]
    map: Vec<FieldMapping>,

    /// Tell who is refused by one configuration and not by the other
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,

    /// Tell how many requests other quotas of a policy would refuse, such as api=10/min..1000/min
    ///
    /// Up to 16 quotas are tried, each larger than the last by the same factor. Each costs as much time
    /// and memory as the replay itself.
    #[arg(long, value_name = "RANGE")]
    sweep: Option<SweepRange>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    /// Write the result as a page with pictures, in one file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Fail if more than this part of all requests is refused, such as 0.1%; with --against, only
    /// requests count that the other configuration does not refuse
    #[arg(long, value_name = "PERCENT")]
    fail_above: Option<Percentage>,

    /// Leave out the files that a configuration names, which may be on another machine: none of the API
    /// keys in them is known
    #[arg(long)]
    skip_files: bool,
}

/// A part of a hundred, such as `0.1%`.
#[derive(Debug, Clone, Copy)]
struct Percentage(f64);

impl FromStr for Percentage {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        let number = number.filter(|number| (0.0..=100.0).contains(number));
        number.map(Self).ok_or("expected a percentage from 0% to 100%, such as 0.1%")
    }
}

/// Replays the logs.
pub(crate) fn run(arguments: &ReplayArguments) -> anyhow::Result<()> {
    let report = arguments.replay()?;
    match arguments.json {
        true => terminal::show(&(serde_json::to_string_pretty(&report)? + "\n"))?,
        false => terminal::show_styled(&report.to_text(terminal::columns()))?,
    }
    if let Some(path) = &arguments.html {
        let written = std::fs::write(path, report.to_html());
        written.with_context(|| format!("{} cannot be written", path.display()))?;
    }
    match arguments.fail_above {
        Some(most) => check_share(arguments, &report, most),
        None => Ok(()),
    }
}

/// Fails if the candidate refuses more than this part of the requests; with `--against`, more than this
/// part which the other configuration does not refuse.
fn check_share(
    arguments: &ReplayArguments,
    report: &ReplayReport,
    Percentage(most): Percentage,
) -> anyhow::Result<()> {
    // Of no requests, no part would ever be too large.
    if report.requests() == 0 {
        bail!("--fail-above: the logs have no request");
    }
    let (share, refused) = match (report.newly_refused(), &arguments.against) {
        (Some(share), Some(other)) => {
            let (config, other) = (arguments.config.display(), other.display());
            (share, format!("refused by {config} and not by {other}"))
        }
        _ => (report.refused(), "refused".to_owned()),
    };
    if share.percent() > most {
        bail!("{share} of the requests would be {refused}, more than {most}%");
    }
    Ok(())
}

impl ReplayArguments {
    fn replay(&self) -> anyhow::Result<ReplayReport> {
        self.check_standard_input()?;
        let (sources, limiter) = self.load(&self.config)?;
        let against = self.against.as_deref().map(|path| self.load(path)).transpose()?;
        let steps = self.sweep.as_ref().map(|range| range.load(&sources, &limiter.policies));
        let steps = steps.transpose()?;
        let name = |path: &Path| path.display().to_string();
        let mut replay = Replay::new(name(&self.config), limiter.into())
            .format(self.format_choice())
            .mappings(self.map.clone());
        if let (Some(path), Some((_, other))) = (&self.against, against) {
            replay = replay.against(name(path), other.into());
        }
        if let (Some(range), Some(steps)) = (&self.sweep, steps) {
            replay = replay.sweep(&range.policy, steps);
        }
        let logs = self.logs.iter().map(|path| open(path)).collect::<anyhow::Result<Vec<_>>>()?;
        let bar = ProgressBar::new(&self.logs);
        Ok(replay.run(logs, |progress| bar.advance(progress))?)
    }

    fn format_choice(&self) -> FormatChoice {
        match (self.format, &self.log_format) {
            (Some(format), _) => FormatChoice::Named(format),
            (None, Some(template)) => FormatChoice::Template(template.clone()),
            (None, None) => FormatChoice::Detected,
        }
    }

    /// Only one of the files can come from standard input.
    fn check_standard_input(&self) -> anyhow::Result<()> {
        let files = self.logs.iter().chain([&self.config]).chain(&self.against);
        match files.filter(|path| path.as_os_str() == "-").count() {
            0 | 1 => Ok(()),
            _ => bail!("- is given more than once: expected one file from standard input"),
        }
    }

    fn load(&self, path: &Path) -> anyhow::Result<(Sources, LimiterConfig)> {
        let sources = Sources::of_command(Some(path), Flags::default())?;
        let sources = sources.skipping_files(self.skip_files);
        let limiter = config::load(&sources)?.config.limiter;
        Ok((sources, limiter))
    }
}

/// Opens a log, or standard input for `-`.
fn open(path: &Path) -> anyhow::Result<AccessLog> {
    Ok(match path.as_os_str() == "-" {
        true => AccessLog::new("standard input", io::stdin()),
        false => AccessLog::open(path)?,
    })
}
