use super::*;

fn answer(code: Code, text: &str) -> CallError {
    let error = etcd_client::Error::GRpcStatus(Status::new(code, text));
    CallError::from_etcd(Call::Defragment, "m1", &error)
}

fn local(source: impl StdError + Send + Sync + 'static) -> CallError {
    let error = etcd_client::Error::GRpcStatus(Status::from_error(Box::new(source)));
    CallError::from_etcd(Call::Defragment, "m1", &error)
}

fn tls(error: rustls::Error) -> CallError {
    local(TransportConnectError(Box::new(io::Error::new(
        io::ErrorKind::InvalidData,
        error,
    ))))
}

#[test]
fn r18_answers_that_leave_the_outcome_open_are_unknown() {
    for (code, text) in [
        (Code::Unavailable, "etcdserver: request timed out"),
        (Code::Unavailable, "etcdserver: server stopped"),
        (Code::Unavailable, "etcdserver: leader changed"),
        (Code::DeadlineExceeded, "context deadline exceeded"),
        (Code::Cancelled, "context canceled"),
        (Code::Internal, "unexpected EOF decoding stream"),
        (Code::Aborted, ""),
        (
            Code::Unknown,
            "grpc-status header missing, mapped from HTTP status code 418",
        ),
        (Code::Unknown, "protocol error: missing grpc-status trailer"),
        (
            Code::Unavailable,
            "grpc-status header missing, mapped from HTTP status code 503",
        ),
    ] {
        let error = answer(code, text);
        assert!(error.outcome_unknown(), "{code:?} {text}: {error:?}");
        assert_eq!(error.reason, Reason::MemberUnreachable, "{text}");
    }
    let late = CallError::timed_out(Call::Defragment, "m1", Duration::from_secs(5), true);
    assert!(late.outcome_unknown());
    assert_eq!(late.to_string(), "defragment at m1: no answer within 5s");
}

#[test]
fn r52_definite_answers_are_refusals() {
    for (code, text) in [
        (Code::FailedPrecondition, "etcdserver: not leader"),
        (
            Code::OutOfRange,
            "etcdserver: mvcc: required revision has been compacted",
        ),
        (
            Code::Unknown,
            "write /var/lib/etcd/member/snap/db.tmp.1: no space left on device",
        ),
        (Code::Unknown, "tx closed"),
        (
            Code::ResourceExhausted,
            "etcdserver: mvcc: database space exceeded",
        ),
        (
            Code::Unavailable,
            "etcdserver: rpc not supported for learner",
        ),
    ] {
        let error = answer(code, text);
        assert_eq!(error.kind, CallErrorKind::Refused(code), "{text}");
        assert_eq!(error.reason, Reason::CallFailed, "{text}");
        assert!(error.message.contains(text));
    }
    let not_etcd = answer(
        Code::Unimplemented,
        "unknown service etcdserverpb.Maintenance",
    );
    assert_eq!(not_etcd.reason, Reason::EndpointUnusable);
}

#[test]
fn r68_refused_users_are_named_as_such() {
    for (code, text, remedy) in [
        (
            Code::InvalidArgument,
            "etcdserver: user name is empty",
            "no user was given",
        ),
        (
            Code::InvalidArgument,
            "etcdserver: authentication failed, invalid user ID or password",
            "check auth's user and password",
        ),
        (
            Code::PermissionDenied,
            "etcdserver: permission denied",
            "role root",
        ),
        (
            Code::Unauthenticated,
            "etcdserver: invalid auth token",
            "token",
        ),
    ] {
        let error = answer(code, text);
        assert_eq!(error.reason, Reason::PermissionDenied, "{text}");
        assert_eq!(error.kind, CallErrorKind::Refused(code), "{text}");
        assert!(error.message.contains(remedy), "{}", error.message);
    }
    let off = Status::new(
        Code::FailedPrecondition,
        "etcdserver: authentication is not enabled",
    );
    assert!(authentication_is_off(&etcd_client::Error::GRpcStatus(off)));
}

#[test]
fn a_failed_connect_was_not_sent_and_shows_the_whole_chain() {
    let refused = io::Error::new(
        io::ErrorKind::ConnectionRefused,
        "connection refused by 127.0.0.1",
    );
    let error = local(TransportConnectError(Box::new(refused)));
    assert_eq!(error.kind, CallErrorKind::NotSent);
    assert_eq!(error.reason, Reason::MemberUnreachable);
    assert!(
        error.message.contains("connection refused by 127.0.0.1"),
        "{error}"
    );
}

#[test]
fn r66_a_name_mismatch_says_which_names_the_certificate_has() {
    let error = tls(rustls::Error::InvalidCertificate(
        rustls::CertificateError::NotValidForNameContext {
            expected: rustls::pki_types::ServerName::try_from("etcd-0.example").unwrap(),
            presented: vec!["DnsName(\"etcd-1.example\")".to_owned()],
        },
    ));
    assert_eq!(
        (error.kind, error.reason),
        (CallErrorKind::NotSent, Reason::EndpointUnusable)
    );
    for part in ["etcd-0.example", "etcd-1.example", "tls.serverName"] {
        assert!(error.message.contains(part), "{part} in {}", error.message);
    }
}

#[test]
fn tls_troubles_are_sorted_by_who_can_mend_them() {
    let plain = tls(rustls::Error::InvalidMessage(
        rustls::InvalidMessage::InvalidContentType,
    ));
    assert_eq!(
        (plain.kind, plain.reason),
        (CallErrorKind::NotSent, Reason::EndpointUnusable)
    );
    assert!(plain.message.contains("write http://"), "{plain}");

    let stranger = tls(rustls::Error::InvalidCertificate(
        rustls::CertificateError::UnknownIssuer,
    ));
    assert_eq!(stranger.reason, Reason::EndpointUnusable);
    assert!(stranger.message.contains("tls.caFile"), "{stranger}");

    let alert = tls(rustls::Error::AlertReceived(
        rustls::AlertDescription::CertificateRequired,
    ));
    assert_eq!(
        (alert.kind, alert.reason),
        (CallErrorKind::NotSent, Reason::PermissionDenied)
    );

    // What h2 leaves of the same alert when it comes after the handshake.
    let late = local(io::Error::other("received fatal alert: BadCertificate"));
    assert_eq!(
        (late.kind, late.reason),
        (CallErrorKind::NotSent, Reason::PermissionDenied)
    );
    // Another alert in mid-connection proves nothing about the request.
    let other = local(io::Error::other("received fatal alert: InternalError"));
    assert!(other.outcome_unknown());
}

#[test]
fn a_connection_lost_after_sending_is_unknown() {
    let error = local(io::Error::new(
        io::ErrorKind::ConnectionReset,
        "connection reset by peer",
    ));
    assert!(error.outcome_unknown());
    assert!(error.broken);
    assert!(error.message.contains("connection reset by peer"));
}
