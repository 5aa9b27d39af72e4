use super::*;

fn read(fields: &str) -> Result<HttpConfig, String> {
    let spec: HttpSpec =
        serde_yaml::from_str(&format!("{{{fields}}}")).map_err(|error| error.to_string())?;
    spec.validate("sources[0].prometheus", "/api/v1")
        .map_err(|error| error.to_string())
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let config = read("url: 'http://prometheus:9090/prefix/'").unwrap();
    assert_eq!(config.url.as_str(), "http://prometheus:9090/prefix/");
    assert_eq!(config.credentials, Credentials::None);
    assert_eq!(config.tls, Tls::default());
    assert_eq!(config.timeout, Duration::from_secs(10));
    assert_eq!(config.max_body, 8 * 1024 * 1024);
    assert_eq!((config.requests_per_second, config.burst), (10.0, 10));
    assert!(config.headers.is_empty());
}

#[test]
fn everything_given_is_taken() {
    let config = read(
        "url: 'https://p', basicAuth: {username: u, passwordFile: /p}, headers: {X-Scope-OrgID: a}, \
         caFile: /ca, certFile: /c, keyFile: /k, timeout: 1m30s, maxBodyBytes: 1Mi, \
         requestsPerSecond: 0.5, burst: 3",
    )
    .unwrap();
    assert_eq!(
        config.credentials,
        Credentials::Basic {
            username: Username::Given("u".into()),
            password_file: "/p".into()
        }
    );
    assert_eq!(config.headers["x-scope-orgid"], "a");
    assert_eq!(config.tls.trust, Trust::CaFile("/ca".into()));
    let files = IdentityFiles {
        cert_file: "/c".into(),
        key_file: "/k".into(),
    };
    assert_eq!(config.tls.identity, Some(files));
    assert_eq!(config.timeout, Duration::from_secs(90));
    assert_eq!(config.max_body, 1024 * 1024);
    assert_eq!((config.requests_per_second, config.burst), (0.5, 3));
    // S29: a client certificate goes with a server that is not verified.
    let insecure =
        read("url: 'https://p', insecureSkipVerify: true, certFile: /c, keyFile: /k").unwrap();
    assert_eq!(insecure.tls.trust, Trust::Anything);
    assert!(insecure.tls.identity.is_some());
}

#[test]
fn errors_name_the_field_and_the_remedy() {
    for (given, field, remedy) in [
        ("url: 'prometheus:9090'", "url", "http"),
        ("url: '/x'", "url", "such as http://"),
        ("url: 'ftp://p'", "url", "not http or https"),
        ("url: 'http://u:secret@p'", "url", "basicAuth"),
        ("url: 'http://p/?a=b'", "url", "query"),
        ("url: 'http://p/#a'", "url", "fragment"),
        ("url: 'http://p/api/v1/'", "url", "leave it out"),
        (
            "url: 'http://p', bearerTokenFile: /t, basicAuth: {username: u, passwordFile: /p}",
            "bearerTokenFile",
            "one of them",
        ),
        (
            "url: 'http://p', bearerTokenFile: ''",
            "bearerTokenFile",
            "path",
        ),
        (
            "url: 'http://p', basicAuth: {passwordFile: /p}",
            "basicAuth.username",
            "usernameFile",
        ),
        (
            "url: 'http://p', basicAuth: {username: u, usernameFile: /u, passwordFile: /p}",
            "basicAuth.usernameFile",
            "one of them",
        ),
        (
            "url: 'http://p', basicAuth: {username: 'a:b', passwordFile: /p}",
            "basicAuth.username",
            "colon",
        ),
        (
            "url: 'http://p', headers: {Authorization: x}",
            "headers.Authorization",
            "bearerTokenFile",
        ),
        (
            "url: 'http://p', headers: {Host: x}",
            "headers.Host",
            "remove",
        ),
        (
            "url: 'http://p', headers: {'a b': x}",
            "headers.a b",
            "name",
        ),
        (
            "url: 'http://p', headers: {A: \"x\\ny\"}",
            "headers.A",
            "characters",
        ),
        (
            "url: 'http://p', headers: {A: x, a: y}",
            "headers.a",
            "once",
        ),
        // S29
        ("url: 'http://p', caFile: /ca", "caFile", "https"),
        (
            "url: 'http://p', insecureSkipVerify: true",
            "insecureSkipVerify",
            "https",
        ),
        (
            "url: 'https://p', caFile: /ca, insecureSkipVerify: true",
            "insecureSkipVerify",
            "remove one",
        ),
        ("url: 'https://p', certFile: /c", "keyFile", "both or none"),
        ("url: 'https://p', keyFile: /c", "certFile", "both or none"),
        ("url: 'http://p', timeout: 0s", "timeout", ""),
        ("url: 'http://p', timeout: 1h", "timeout", "5m"),
        ("url: 'http://p', timeout: soon", "timeout", ""),
        ("url: 'http://p', maxBodyBytes: 1", "maxBodyBytes", "1Ki"),
        (
            "url: 'http://p', maxBodyBytes: 1Ti",
            "maxBodyBytes",
            "256Mi",
        ),
        (
            "url: 'http://p', maxBodyBytes: 1500m",
            "maxBodyBytes",
            "8Mi",
        ),
        (
            "url: 'http://p', requestsPerSecond: 0",
            "requestsPerSecond",
            "0.01",
        ),
        (
            "url: 'http://p', requestsPerSecond: -1",
            "requestsPerSecond",
            "0.01",
        ),
        (
            "url: 'http://p', requestsPerSecond: .nan",
            "requestsPerSecond",
            "0.01",
        ),
        ("url: 'http://p', burst: 0", "burst", "1 to"),
    ] {
        let error = read(given)
            .err()
            .unwrap_or_else(|| panic!("{given}: accepted"));
        assert!(
            error.starts_with(&format!("sources[0].prometheus.{field}: ")),
            "{given}: {error}"
        );
        assert!(error.contains(remedy), "{given}: {error}");
        assert!(!error.contains("secret@"), "{error}");
    }
    for given in [
        "url: 'http://p', bearerToken: x",
        "url: 'http://p', basicAuth: {user: x}",
        "",
    ] {
        assert!(read(given).is_err(), "{given}");
    }
}
