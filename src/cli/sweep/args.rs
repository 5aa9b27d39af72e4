//! The flags of a sweep, and what they stand for: how the cluster is reached,
//! and the object that a policy or a person would have written.

use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::defrag::{
    ClusterRef, CompactionSpec, EtcdDefrag, EtcdDefragSpec, LeaderModeSpec, RuleSpec, RunTemplate,
    SettleSpec,
};
use crate::api::scalar::IntOrString;
use crate::api::validate::{self, Place};
use crate::cli::CliError;
use crate::cli::output::Format;
use crate::core::duration;
use crate::core::run::RunSpec;
use crate::etcd::{Auth, ConnectError, Connection, Endpoint, Source, Tls};

/// What the object of a sweep, and the cluster in it, are called.
const NAME: &str = "sweep";
/// Longer than any password that etcd takes; a wrong file is noticed early.
const MAX_PASSWORD: u64 = 4096;

/// Defragments one cluster now, member by member, and only while it is healthy
///
/// Followers first, the leader last, after leadership was moved to a member that
/// is done. Before each member the whole cluster is looked at again. Nothing is
/// forced: an unhealthy cluster is left untouched.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  defragd sweep --endpoints http://10.0.0.1:2379,http://10.0.0.2:2379,http://10.0.0.3:2379
  defragd sweep --endpoints https://10.0.0.1:2379 --cacert ca.crt --cert client.crt --key client.key \\
      --rule 'dbQuotaUsage > 0.8 || dbSizeFree > 200*1024*1024' --dry-run

Exit codes:
  0    complete, also when no member was due
  1    the run failed
  2    the command line is wrong
  3    refused or deferred before anything was touched
  130  interrupted; it ended after the member in progress")]
pub(in crate::cli) struct Args {
    /// Client URLs of the members; one finds the others by what they advertise
    #[arg(long, value_name = "URL,…", required = true, value_delimiter = ',')]
    endpoints: Vec<String>,

    /// The authority that signed the members' certificates, in PEM
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    cacert: Option<PathBuf>,

    /// The client certificate, in PEM
    #[arg(
        long,
        value_name = "FILE",
        requires = "key",
        help_heading = "Connection"
    )]
    cert: Option<PathBuf>,

    /// The client certificate's key, in PEM
    #[arg(
        long,
        value_name = "FILE",
        requires = "cert",
        help_heading = "Connection"
    )]
    key: Option<PathBuf>,

    /// The name to expect in the members' certificates instead of the endpoint's host
    #[arg(long, value_name = "NAME", help_heading = "Connection")]
    servername: Option<String>,

    /// The etcd user
    #[arg(
        long,
        value_name = "NAME",
        requires = "password_file",
        help_heading = "Connection"
    )]
    user: Option<String>,

    /// The file that holds the user's password; - reads it from standard input
    #[arg(
        long,
        value_name = "FILE",
        requires = "user",
        help_heading = "Connection"
    )]
    password_file: Option<PathBuf>,

    /// Which members are due: default (more than 200Mi to give back), all, or a CEL expression
    ///
    /// An expression knows dbSize, dbSizeInUse, dbSizeFree, dbQuota (bytes) and
    /// dbQuotaUsage (0 to 1).
    #[arg(
        long,
        value_name = "default|all|CEL",
        default_value = "default",
        help_heading = "What is due"
    )]
    rule: String,

    /// A member is due when it would give back more than this, such as 200Mi
    #[arg(long, value_name = "SIZE", help_heading = "What is due")]
    free_space_above: Option<String>,

    /// A member is due when its file is larger than this part of its quota, such as 80%, and it
    /// would give back 32Mi
    ///
    /// Without --free-space-above this alone decides.
    #[arg(long, value_name = "PERCENT", help_heading = "What is due")]
    quota_usage_above: Option<String>,

    /// What to do about the leader
    #[arg(long, value_enum, default_value_t = Leader::Move, help_heading = "How")]
    leader: Leader,

    /// Compact before the first member and keep this many revisions; without it nothing is
    /// compacted
    // A negative number is refused by validation, in its words, and not as an unknown flag.
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        help_heading = "How"
    )]
    keep_revisions: Option<i64>,

    /// Leave a NOSPACE alarm armed even when every member has room
    #[arg(long, help_heading = "How")]
    no_disarm: bool,

    /// Accept the downtime that a cluster of one member means
    #[arg(long, help_heading = "How")]
    allow_single_member: bool,

    /// Say what would be done and change nothing
    #[arg(long, help_heading = "How")]
    dry_run: bool,

    /// How many voters the cluster must have; without it, as many as it lists
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=63), help_heading = "Limits")]
    member_count: Option<u32>,

    /// How long one member may take, 5s to 6h; without it, computed from the bytes in use
    #[arg(long, value_name = "DURATION", help_heading = "Limits")]
    member_timeout: Option<String>,

    /// How long the whole sweep may take, 1m to 24h
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "45m",
        help_heading = "Limits"
    )]
    active_deadline: String,

    /// How long a member may take to catch up after its turn, 1s to 1h
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "2m",
        help_heading = "Limits"
    )]
    settle_timeout: String,

    /// How many raft entries a member may be behind and still count as caught up
    #[arg(
        long,
        value_name = "N",
        default_value_t = 500,
        allow_negative_numbers = true,
        help_heading = "Limits"
    )]
    max_raft_lag: i64,

    /// How long an unhealthy cluster is waited for before anything is touched
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = wait, help_heading = "Limits")]
    pub(super) wait: Duration,

    /// How the result is written to standard output
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    pub(super) output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Leader {
    /// Move leadership to a member that is done, then defragment the old leader
    Move,
    /// Defragment it while it leads
    #[value(name = "inplace")]
    InPlace,
    /// Leave it alone
    Skip,
}

impl From<Leader> for LeaderModeSpec {
    fn from(leader: Leader) -> Self {
        match leader {
            Leader::Move => LeaderModeSpec::Move,
            Leader::InPlace => LeaderModeSpec::InPlace,
            Leader::Skip => LeaderModeSpec::Skip,
        }
    }
}

fn wait(text: &str) -> Result<Duration, duration::DurationError> {
    duration::parse(text).map(|span| span.unsigned_abs())
}

impl Args {
    /// How the cluster is reached. Reads the password when it comes from
    /// standard input; files are left to whoever connects.
    pub(super) fn connection(&self) -> Result<Connection, CliError> {
        // Not parsed by clap, which would repeat a password in a URL.
        if let Some(i) = self
            .endpoints
            .iter()
            .position(|text| text.trim().is_empty())
        {
            return Err(CliError::Usage(match self.endpoints.len() {
                1 => "--endpoints: is empty, write a URL such as http://10.0.0.1:2379".to_owned(),
                all => format!(
                    "--endpoints: endpoint {} of {all} is empty, remove the comma beside it",
                    i + 1
                ),
            }));
        }
        let endpoints = self
            .endpoints
            .iter()
            .map(|text| Endpoint::parse(text.trim()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| CliError::Usage(format!("--endpoints: {e}")))?;
        let mut connection = Connection::new(endpoints);
        connection.expected_voters = self.member_count;
        let tls = [&self.cacert, &self.cert, &self.key]
            .into_iter()
            .any(Option::is_some)
            || self.servername.is_some();
        connection.tls = tls.then(|| Tls {
            ca: self.cacert.as_ref().map(Source::file),
            certificate: self.cert.as_ref().map(Source::file),
            key: self.key.as_ref().map(Source::file),
            server_name: self.servername.clone(),
        });
        connection.auth = match (&self.user, &self.password_file) {
            (Some(user), Some(_)) if user.contains(':') => {
                // Not repeated: what follows the colon is likely a password.
                return Err(CliError::Usage(
                    "--user: has a colon, write only the name and put the password into --password-file"
                        .to_owned(),
                ));
            }
            (Some(user), Some(file)) => Some(Auth {
                username: Source::given(user.as_str()),
                password: password(file)?,
            }),
            _ => None,
        };
        connection
            .validate()
            .map_err(|e| CliError::Usage(self.refusal(&e)))?;
        Ok(connection)
    }

    /// Why the connection cannot be: whoever gave flags knows of no `tls`.
    fn refusal(&self, error: &ConnectError) -> String {
        let given: Vec<&str> = [
            ("--cacert", self.cacert.is_some()),
            ("--cert", self.cert.is_some()),
            ("--key", self.key.is_some()),
            ("--servername", self.servername.is_some()),
        ]
        .into_iter()
        .filter_map(|(flag, is_given)| is_given.then_some(flag))
        .collect();
        match error {
            ConnectError::HttpWithTls { endpoint } => {
                let given = given.join(" and ");
                format!(
                    "--endpoints {endpoint}: is http although {given} was given, write https:// (or remove {given})"
                )
            }
            ConnectError::HttpsWithoutTls { endpoint } => format!(
                "--endpoints {endpoint}: is https without --cacert, set --cacert to the authority that signed its certificate (or write http://)"
            ),
            other => in_flags(&other.to_string()),
        }
    }

    /// The run as an object, and its validated spec.
    pub(super) fn run(&self) -> Result<(EtcdDefrag, RunSpec), CliError> {
        let template = RunTemplate {
            rule: self.rule()?,
            compaction: self
                .keep_revisions
                .map(|keep_revisions| CompactionSpec { keep_revisions }),
            leader: Some(self.leader.into()),
            disarm_no_space: Some(!self.no_disarm),
            settle: Some(SettleSpec {
                max_raft_lag: Some(self.max_raft_lag),
                timeout: Some(self.settle_timeout.clone()),
            }),
            member_timeout: self.member_timeout.clone(),
            active_deadline: Some(self.active_deadline.clone()),
            allow_single_member: Some(self.allow_single_member),
            dry_run: Some(self.dry_run),
            suspend: None,
            ttl_seconds_after_finished: None,
        };
        let object = EtcdDefrag {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                generation: Some(1),
                ..ObjectMeta::default()
            },
            spec: EtcdDefragSpec {
                cluster_ref: ClusterRef {
                    name: NAME.to_owned(),
                    ..ClusterRef::default()
                },
                run: template,
            },
            status: None,
        };
        match validate::run(&object, Place::Anywhere) {
            Ok(spec) => Ok((object, spec)),
            Err(errors) => {
                let lines: Vec<_> = errors.iter().map(|e| in_flags(&e.to_string())).collect();
                Err(CliError::Usage(lines.join("\nerror: ")))
            }
        }
    }

    fn rule(&self) -> Result<Option<RuleSpec>, CliError> {
        let thresholds = [
            ("--free-space-above", &self.free_space_above),
            ("--quota-usage-above", &self.quota_usage_above),
        ];
        let threshold = thresholds
            .into_iter()
            .find_map(|(flag, value)| value.as_ref().and(Some(flag)));
        match (self.rule.as_str(), threshold) {
            ("default", None) => Ok(None),
            ("default", Some(_)) => Ok(Some(RuleSpec {
                free_space_above: self.free_space_above.as_deref().map(IntOrString::from),
                quota_usage_above: self.quota_usage_above.clone(),
                ..RuleSpec::default()
            })),
            (rule, Some(flag)) => Err(CliError::Usage(format!(
                "--rule {rule:?} and {flag} exclude one another, give one of them"
            ))),
            ("all", None) => Ok(Some(RuleSpec {
                all: Some(true),
                ..RuleSpec::default()
            })),
            (expression, None) => Ok(Some(RuleSpec {
                expression: Some(expression.to_owned()),
                ..RuleSpec::default()
            })),
        }
    }
}

fn password(file: &PathBuf) -> Result<Source, CliError> {
    if file.as_os_str() != "-" {
        return Ok(Source::file(file));
    }
    let mut password = Vec::new();
    std::io::stdin()
        .lock()
        .take(MAX_PASSWORD + 1)
        .read_to_end(&mut password)
        .map_err(|e| {
            CliError::Usage(format!(
                "--password-file -: unable to read standard input ({e})"
            ))
        })?;
    if password.len() as u64 > MAX_PASSWORD {
        return Err(CliError::Usage(format!(
            "--password-file -: standard input holds more than {MAX_PASSWORD} bytes, give only the password"
        )));
    }
    Ok(Source::given(password))
}

/// Fields of the objects, by the flags that set them here. The longer of two
/// that begin alike comes first.
const FLAGS: [(&str, &str); 20] = [
    ("spec.rule.freeSpaceAbove", "--free-space-above"),
    ("spec.rule.quotaUsageAbove", "--quota-usage-above"),
    ("spec.rule.expression", "--rule"),
    ("spec.rule", "--rule"),
    ("spec.compaction.keepRevisions", "--keep-revisions"),
    ("spec.settle.maxRaftLag", "--max-raft-lag"),
    ("settle.maxRaftLag", "--max-raft-lag"),
    ("spec.settle.timeout", "--settle-timeout"),
    ("spec.memberTimeout", "--member-timeout"),
    ("spec.activeDeadline", "--active-deadline"),
    ("activeDeadline", "--active-deadline"),
    (
        "allowSingleMember (--allow-single-member)",
        "--allow-single-member",
    ),
    (" (in Kubernetes tls.secretRef)", ""),
    ("tls.caFile", "--cacert"),
    ("tls.certFile", "--cert"),
    ("tls.keyFile", "--key"),
    ("tls.serverName", "--servername"),
    ("auth.passwordFile", "--password-file"),
    ("set auth", "give --user and --password-file"),
    ("memberCount", "--member-count"),
];

/// A message about an object, in the words of the command line.
pub(super) fn in_flags(message: &str) -> String {
    FLAGS
        .iter()
        .fold(message.to_owned(), |text, (field, flag)| {
            text.replace(field, flag)
        })
}
