//! The formats of logs, and how the format of one is found.

mod columns;
mod json;
mod template;

use std::sync::Arc;

use csv::ByteRecord;
use http::{HeaderName, header};
use serde_json::Value;
use slidegate::Policies;
use slidegate_tower::AddressSource;

use self::columns::CsvColumns;
use self::json::{JsonFields, JsonShape};
use self::template::LineTemplate;
use crate::entry::{BadLine, FieldMapping, LogEntry};
use crate::simulation::RuleSet;
use crate::time::TimeReader;

/// A format that logs are known to have.
// The comments on the variants are the help of a command line, which has no full stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum AccessLogFormat {
    /// nginx's and Apache's combined format, and Traefik's CLF
    #[cfg_attr(feature = "clap", value(alias = "nginx", alias = "apache", alias = "traefik"))]
    Combined,
    /// The same without referrer and user agent
    #[cfg_attr(feature = "clap", value(alias = "clf"))]
    Common,
    /// Caddy's JSON
    Caddy,
    /// Traefik's JSON
    TraefikJson,
    /// Envoy's default format
    Envoy,
    /// Access log of an AWS application load balancer
    Alb,
    /// Slidegate's access log, in JSON
    Slidegate,
    /// Slidegate's audit trail
    Audit,
    /// CSV with a header
    Csv,
    /// Any JSON whose fields --map names
    Json,
}

/// How the format of a log is known.
#[derive(Debug, Clone, Default)]
pub enum FormatChoice {
    /// By its first lines.
    #[default]
    Detected,
    /// By its name.
    Named(AccessLogFormat),
    /// By a template as nginx's `log_format` has it.
    Template(String),
}

/// What is known of the logs before they are read.
#[derive(Debug)]
pub(crate) struct FormatRequest<'a> {
    pub(crate) format: &'a FormatChoice,
    pub(crate) mappings: &'a [FieldMapping],
    pub(crate) wanted: &'a WantedHeaders,
    /// Those that give API keys their names, which the audit trail has.
    pub(crate) policies: &'a Arc<Policies>,
}

/// The headers that policies read, and no others.
#[derive(Debug)]
pub(crate) struct WantedHeaders(Vec<HeaderName>);

/// Whether a line is about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineKind {
    Request,
    /// It is about something else, as other lines of a JSON log are.
    Other,
}

/// How one log is read.
#[derive(Debug)]
pub(crate) enum LogParser {
    Lines(LineParser),
    Csv(CsvColumns),
}

/// How a line is read.
#[derive(Debug)]
pub(crate) enum LineParser {
    Template(LineTemplate),
    Json(JsonFields),
}

impl WantedHeaders {
    pub(crate) fn of(rules: &RuleSet) -> Self {
        let mut names = vec![HeaderName::from_static("x-api-key"), header::AUTHORIZATION];
        names.extend(rules.policies.identity_headers().cloned());
        if rules.client_address.source() != AddressSource::Peer {
            names.extend(rules.client_address.source().to_string().parse::<HeaderName>());
        }
        names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        names.dedup();
        Self(names)
    }

    pub(crate) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}

/// For a log without lines.
impl Default for LogParser {
    fn default() -> Self {
        Self::Csv(CsvColumns::default())
    }
}

impl LogParser {
    /// A parser of a log that begins so. The error says why there is none.
    pub(crate) fn new(request: &FormatRequest<'_>, beginning: &[u8]) -> Result<Self, String> {
        Ok(match request.format {
            FormatChoice::Detected => Self::found(request, beginning)?,
            FormatChoice::Named(format) => Self::of_format(*format, request, beginning)?,
            FormatChoice::Template(template) => {
                let template = LineTemplate::parse(template, request.mappings, request.wanted);
                let template = template.map_err(|problem| format!("--log-format: {problem}"))?;
                Self::Lines(LineParser::Template(template))
            }
        })
    }

    fn of_format(
        format: AccessLogFormat,
        request: &FormatRequest<'_>,
        beginning: &[u8],
    ) -> Result<Self, String> {
        let (mappings, wanted) = (request.mappings, request.wanted);
        let template = |text: &str| {
            let template = LineTemplate::parse(text, mappings, wanted)?;
            Ok(Self::Lines(LineParser::Template(template)))
        };
        let json = |shape| Ok(Self::Lines(LineParser::Json(JsonFields::new(shape, request)?)));
        match format {
            AccessLogFormat::Combined => template(template::COMBINED),
            AccessLogFormat::Common => template(template::COMMON),
            AccessLogFormat::Envoy => template(template::ENVOY),
            AccessLogFormat::Alb => template(template::ALB),
            AccessLogFormat::Caddy => json(JsonShape::Caddy),
            AccessLogFormat::TraefikJson => json(JsonShape::Traefik),
            AccessLogFormat::Slidegate => json(JsonShape::Access),
            AccessLogFormat::Audit => json(JsonShape::Audit),
            AccessLogFormat::Json => json(JsonShape::Other),
            AccessLogFormat::Csv => {
                CsvColumns::new(&csv_header(beginning), mappings).map(Self::Csv)
            }
        }
    }

    /// The parser that reads most of the first lines.
    fn found(request: &FormatRequest<'_>, beginning: &[u8]) -> Result<Self, String> {
        let lines = || beginning.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        if lines().any(|line| line.starts_with(b"{")) {
            let objects = lines().filter_map(|line| serde_json::from_slice::<Value>(line).ok());
            let shape = objects.filter_map(|line| JsonShape::of(&line)).next();
            let shape = shape.unwrap_or(JsonShape::Other);
            let fields = JsonFields::new(shape, request)?;
            return Ok(Self::Lines(LineParser::Json(fields)));
        }
        let mut best = None;
        let mut most = 0;
        for text in [template::ALB, template::ENVOY, template::COMBINED, template::COMMON] {
            let template = LineTemplate::parse(text, request.mappings, request.wanted);
            let Ok(parser) = template.map(LineParser::Template) else { continue };
            let good = lines().filter(|line| parser.reads(line)).count();
            if good > most {
                (best, most) = (Some(parser), good);
            }
        }
        if let Some(parser) = best {
            return Ok(Self::Lines(parser));
        }
        let unknown = "the first lines are of no format that is known: name it by --format, or \
                       nginx's own by --log-format";
        let columns = CsvColumns::new(&csv_header(beginning), request.mappings);
        // With mappings the user expects CSV, so the problem with the columns is the useful error.
        columns.map(Self::Csv).map_err(|problem| match request.mappings {
            [] => unknown.to_owned(),
            _ => problem,
        })
    }
}

impl LineParser {
    fn reads(&self, line: &[u8]) -> bool {
        let mut entry = LogEntry::default();
        self.read(line, &mut entry, &mut TimeReader::default()).is_ok()
    }

    /// Fills an entry from a line.
    pub(crate) fn read(
        &self,
        line: &[u8],
        entry: &mut LogEntry,
        times: &mut TimeReader,
    ) -> Result<LineKind, BadLine> {
        entry.clear();
        let kind = match self {
            Self::Template(template) => {
                template.read(line, entry, times).map(|()| LineKind::Request)?
            }
            Self::Json(fields) => fields.read(line, entry, times)?,
        };
        if kind == LineKind::Request {
            entry.check()?;
        }
        Ok(kind)
    }

    /// Whether a line may have a secret, and is not to be shown.
    pub(crate) fn may_have_secrets(&self) -> bool {
        match self {
            Self::Template(template) => template.may_have_secrets,
            // Any header may be in it.
            Self::Json(_) => true,
        }
    }
}

fn csv_header(beginning: &[u8]) -> ByteRecord {
    let mut lines = beginning.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.find(|line| !line.is_empty()).map(csv_record).unwrap_or_default()
}

/// The fields of a line. A record has one line: a stray quote spoils no other.
pub(crate) fn csv_record(line: &[u8]) -> ByteRecord {
    let mut builder = csv::ReaderBuilder::new();
    builder.has_headers(false).flexible(true).buffer_capacity(line.len().max(1));
    let mut record = ByteRecord::new();
    match builder.from_reader(line).read_byte_record(&mut record) {
        Ok(_) => record,
        Err(_) => ByteRecord::new(),
    }
}
