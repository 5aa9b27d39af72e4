//! A call that did not succeed, as a value: which member, which call, and
//! whether it may have been executed all the same.
//!
//! etcd-client's errors have no `source()`, and a gRPC status keeps what went
//! wrong below it in its chain; [`chain`] prints the whole of it.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::time::Duration;

use tonic::{Code, ConnectError as TransportConnectError, Status};

use crate::core::reason::Reason;
use crate::core::view::Trouble;

/// The calls that are made to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Status,
    MemberList,
    AlarmList,
    Defragment,
    MoveLeader,
    Compact,
    DisarmNoSpace,
}

impl Call {
    /// Whether the call changes something.
    pub const fn mutates(self) -> bool {
        match self {
            Call::Status | Call::MemberList | Call::AlarmList => false,
            Call::Defragment | Call::MoveLeader | Call::Compact | Call::DisarmNoSpace => true,
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Call::Status => "status",
            Call::MemberList => "member list",
            Call::AlarmList => "alarm list",
            Call::Defragment => "defragment",
            Call::MoveLeader => "move leader",
            Call::Compact => "compact",
            Call::DisarmNoSpace => "disarm NOSPACE",
        })
    }
}

/// What is known about the execution of a call that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallErrorKind {
    /// The request never left, or went to nobody who could execute it:
    /// definitely not executed.
    NotSent,
    /// etcd gave a definite answer: the call was refused, or it ended and
    /// failed. Nothing is still going on.
    Refused(Code),
    /// The request left and no definite answer came back. The server may have
    /// executed it, may be executing it still, or may never have seen it.
    Unknown,
}

/// A call that did not succeed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{call} at {at}: {message}")]
pub struct CallError {
    /// The endpoint, and the member where it is known.
    pub at: String,
    pub call: Call,
    pub kind: CallErrorKind,
    /// What kind of trouble it is for the one who reads it.
    pub reason: Reason,
    /// The whole chain of causes, and a remedy where there is one.
    pub message: String,
    /// The connection broke without any answer: somebody else than an etcd may
    /// be listening there.
    pub(super) broken: bool,
}

impl CallError {
    /// An error that was found before anything was sent.
    pub(super) fn not_sent(
        call: Call,
        at: impl Into<String>,
        reason: Reason,
        message: impl Into<String>,
    ) -> Self {
        CallError {
            at: at.into(),
            call,
            kind: CallErrorKind::NotSent,
            reason,
            message: message.into(),
            broken: false,
        }
    }

    /// The call's time was up; `sent` says whether the request may have left.
    pub(super) fn timed_out(
        call: Call,
        at: impl Into<String>,
        limit: Duration,
        sent: bool,
    ) -> Self {
        let (kind, what) = if sent {
            (CallErrorKind::Unknown, "no answer")
        } else {
            (CallErrorKind::NotSent, "no connection")
        };
        CallError {
            at: at.into(),
            call,
            kind,
            reason: Reason::MemberUnreachable,
            message: format!("{what} within {limit:?}"),
            broken: false,
        }
    }

    /// An answer that lacks what every etcd v3 sends.
    pub(super) fn without_header(call: Call, at: impl Into<String>) -> Self {
        CallError {
            at: at.into(),
            call,
            kind: CallErrorKind::Refused(Code::Ok),
            reason: Reason::EndpointUnusable,
            message: "the answer carries no cluster id and no member id: not an etcd v3".to_owned(),
            broken: false,
        }
    }

    /// Reads what etcd-client reports.
    pub(super) fn from_etcd(call: Call, at: impl Into<String>, error: &etcd_client::Error) -> Self {
        let verdict = classify(error);
        CallError {
            at: at.into(),
            call,
            kind: verdict.kind,
            reason: verdict.reason,
            message: verdict.message,
            broken: verdict.broken,
        }
    }

    /// The same error, for a request that certainly had not left yet.
    pub(super) fn before_sending(mut self) -> Self {
        self.kind = CallErrorKind::NotSent;
        self
    }

    /// Whether etcd refused because the revision is compacted already.
    pub(super) fn says_compacted(&self) -> bool {
        self.kind == CallErrorKind::Refused(Code::OutOfRange)
            && self
                .message
                .contains("required revision has been compacted")
    }

    /// Whether the call may have been executed, now or later.
    pub fn outcome_unknown(&self) -> bool {
        self.kind == CallErrorKind::Unknown
    }

    /// The error as the core sees it.
    pub fn trouble(&self) -> Trouble {
        Trouble {
            reason: self.reason,
            message: self.to_string(),
        }
    }
}

struct Verdict {
    kind: CallErrorKind,
    reason: Reason,
    message: String,
    broken: bool,
}

impl Verdict {
    fn new(kind: CallErrorKind, reason: Reason, message: String) -> Self {
        Verdict {
            kind,
            reason,
            message,
            broken: false,
        }
    }
}

/// Sorts an error into "not executed", "refused" and "unknown". Whatever is
/// not known to be harmless is unknown.
fn classify(error: &etcd_client::Error) -> Verdict {
    use etcd_client::Error;
    match error {
        Error::GRpcStatus(status) if status.source().is_some() => classify_transport(status),
        Error::GRpcStatus(status) => classify_answer(status),
        // These are found while the client is built, before it has a connection.
        Error::InvalidArgs(_)
        | Error::InvalidUri(_)
        | Error::TransportError(_)
        | Error::EndpointError(_)
        | Error::EndpointsNotManaged => Verdict::new(
            CallErrorKind::NotSent,
            Reason::EndpointUnusable,
            etcd_chain(error),
        ),
        // The token that Authenticate gave cannot be a header; no call can carry it.
        Error::InvalidMetadataValue(_) => Verdict::new(
            CallErrorKind::NotSent,
            Reason::PermissionDenied,
            etcd_chain(error),
        ),
        Error::IoError(_)
        | Error::WatchError(_)
        | Error::Utf8Error(_)
        | Error::LeaseKeepAliveError(_)
        | Error::ElectError(_)
        | Error::Internal(_) => Verdict::new(
            CallErrorKind::Unknown,
            Reason::MemberUnreachable,
            etcd_chain(error),
        ),
    }
}

/// A status that tonic made of a failed connection: its chain has a source.
fn classify_transport(status: &Status) -> Verdict {
    let mut message = chain(status);
    let tls = find(status, tls_error);
    // The server refuses a client's certificate only after the client has
    // finished its side of a TLS 1.3 handshake, so this can come from the
    // connection instead of from connecting. The alert's name then survives
    // only as text. Either way no request passed.
    let alert = tls.is_some_and(is_certificate_alert) || names_certificate_alert(&message);
    let connecting = find(status, |e| e.downcast_ref::<TransportConnectError>()).is_some();
    if !connecting && !alert {
        return Verdict {
            kind: CallErrorKind::Unknown,
            reason: Reason::MemberUnreachable,
            message,
            broken: true,
        };
    }
    let hung_up = find(status, |e| e.downcast_ref::<io::Error>()).is_some_and(|e| {
        matches!(
            e.kind(),
            io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe
        )
    });
    let reason = if alert {
        message.push_str(": ");
        message.push_str(CLIENT_CERTIFICATE_WANTED);
        Reason::PermissionDenied
    } else {
        match tls {
            Some(rustls::Error::InvalidCertificate(why)) => {
                message.push_str(certificate_remedy(why));
                Reason::EndpointUnusable
            }
            Some(rustls::Error::InvalidMessage(_)) => {
                message.push_str(": the port does not speak TLS, write http:// for it");
                Reason::EndpointUnusable
            }
            Some(_) => Reason::EndpointUnusable,
            None => Reason::MemberUnreachable,
        }
    };
    Verdict {
        kind: CallErrorKind::NotSent,
        reason,
        message,
        broken: hung_up && tls.is_none(),
    }
}

/// The remedy when a server closes a TLS connection for want of a certificate.
pub(super) const CLIENT_CERTIFICATE_WANTED: &str = "etcd wants a client certificate that its own authority signed, set tls.certFile and tls.keyFile (in Kubernetes tls.secretRef)";

/// A status that the server sent (or that stands for an answer without one).
fn classify_answer(status: &Status) -> Verdict {
    let said = status.message();
    let refused = CallErrorKind::Refused(status.code());
    if let Some(remedy) = permission_remedy(status) {
        return Verdict::new(refused, Reason::PermissionDenied, format!("{said}{remedy}"));
    }
    let named = format!("{said} ({:?})", status.code());
    match status.code() {
        Code::Unimplemented => Verdict::new(
            refused,
            Reason::EndpointUnusable,
            format!("{named}: the server has no such call, it is not an etcd v3"),
        ),
        // Answered by interceptors of etcd before the call is looked at.
        Code::Unavailable if REFUSED_BEFORE_EXECUTION.contains(&said) => {
            Verdict::new(refused, Reason::CallFailed, named)
        }
        // A proxy's answer, or a stream that ended without a status: nothing
        // is known about the etcd behind it.
        Code::Unknown if said.starts_with("grpc-status header missing") || said.starts_with("protocol error") => {
            Verdict::new(CallErrorKind::Unknown, Reason::MemberUnreachable, named)
        }
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::DataLoss
        | Code::Unauthenticated
        // etcd sends its own failures (a full disk, "tx closed") with this code.
        | Code::Unknown => Verdict::new(refused, Reason::CallFailed, named),
        // Time-outs within etcd, a server that stops, a leader that changes:
        // the proposal may still be applied.
        Code::Ok
        | Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable => Verdict::new(CallErrorKind::Unknown, Reason::MemberUnreachable, named),
    }
}

/// Texts of `api/v3rpc/rpctypes/error.go` that etcd sends with `Unavailable`
/// before it looks at the call.
const REFUSED_BEFORE_EXECUTION: [&str; 2] = [
    "etcdserver: rpc not supported for learner",
    "etcdserver: no leader",
];

/// Whether etcd refuses the user, and what can be done (R68). The texts are
/// those of `api/v3rpc/rpctypes/error.go`.
fn permission_remedy(status: &Status) -> Option<&'static str> {
    match (status.code(), status.message()) {
        (Code::InvalidArgument, "etcdserver: user name is empty") => {
            Some(": etcd has authentication on and no user was given, set auth")
        }
        (
            Code::InvalidArgument,
            "etcdserver: authentication failed, invalid user ID or password",
        ) => Some(": check auth's user and password"),
        // What a client certificate's name is taken for.
        (Code::FailedPrecondition, "etcdserver: user name not found") => Some(
            ": with authentication on, the client certificate's common name must be an etcd user \
             with the role root",
        ),
        // A JWT made before users or roles were changed.
        (Code::InvalidArgument, "etcdserver: revision of auth store is old") => {
            Some(": the next call uses a fresh token")
        }
        (Code::PermissionDenied, _) => Some(": the user needs the role root"),
        (Code::Unauthenticated, _) => Some(": the token was refused, also a fresh one"),
        _ => None,
    }
}

/// Whether Authenticate says that etcd runs without authentication. clientv3
/// goes on without a token then, and so does defragd.
pub(super) fn authentication_is_off(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status)
        if status.code() == Code::FailedPrecondition
            && status.message() == "etcdserver: authentication is not enabled")
}

fn certificate_remedy(why: &rustls::CertificateError) -> &'static str {
    use rustls::CertificateError as E;
    match why {
        E::NotValidForName | E::NotValidForNameContext { .. } => {
            ": use one of these names in the endpoint, or set tls.serverName to one"
        }
        E::UnknownIssuer => {
            ": tls.caFile (in Kubernetes tls.secretRef) is not the authority that signed the server's certificate"
        }
        E::Expired | E::ExpiredContext { .. } => ": the server's certificate has to be renewed",
        _ => "",
    }
}

fn is_certificate_alert(error: &rustls::Error) -> bool {
    use rustls::AlertDescription as A;
    matches!(
        error,
        rustls::Error::AlertReceived(
            A::CertificateRequired
                | A::BadCertificate
                | A::UnknownCA
                | A::CertificateExpired
                | A::CertificateUnknown
                | A::CertificateRevoked
                | A::UnsupportedCertificate
                | A::AccessDenied
        )
    )
}

/// h2 keeps of an I/O error only its text.
pub(super) fn names_certificate_alert(message: &str) -> bool {
    const ALERT: &str = "received fatal alert: ";
    message.find(ALERT).is_some_and(|at| {
        let name = &message[at + ALERT.len()..];
        [
            "CertificateRequired",
            "BadCertificate",
            "UnknownCA",
            "CertificateExpired",
            "CertificateUnknown",
            "CertificateRevoked",
            "UnsupportedCertificate",
            "AccessDenied",
        ]
        .iter()
        .any(|alert| name.starts_with(alert))
    })
}

/// The TLS error itself. It hides inside an [`io::Error`], whose `source()`
/// passes over the error that it wraps.
fn tls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    error.downcast_ref::<rustls::Error>().or_else(|| {
        error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .and_then(|inner| inner.downcast_ref())
    })
}

fn find<'a, T>(
    error: &'a (dyn StdError + 'static),
    look: impl Fn(&'a (dyn StdError + 'static)) -> Option<T>,
) -> Option<T> {
    std::iter::successors(Some(error), |e| (*e).source()).find_map(look)
}

/// The texts of an error and of all its sources, from the outside in, each
/// said once.
pub(super) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = match error.downcast_ref::<Status>() {
        // The status' own Display repeats its code and its metadata.
        Some(status) => status.message().to_owned(),
        None => error.to_string(),
    };
    for source in std::iter::successors(error.source(), |e| (*e).source()) {
        let said = source.to_string();
        // What tonic calls each of its own layers.
        if said != "transport error" && !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
    }
    text
}

fn etcd_chain(error: &etcd_client::Error) -> String {
    match error {
        etcd_client::Error::TransportError(inner) => chain(inner),
        etcd_client::Error::IoError(inner) => chain(inner),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
