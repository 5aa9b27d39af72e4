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
    assert_eq!(config.urls[0].as_str(), "http://prometheus:9090/prefix/");
    assert_eq!(config.credentials, Credentials::None);
    assert_eq!(config.tls, Tls::default());
    assert_eq!(config.timeout, Duration::from_secs(10));
    assert_eq!(config.max_body, 8 * 1024 * 1024);
    assert_eq!((config.requests_per_second, config.burst), (10.0, 10));
    assert!(config.headers.is_empty() && config.header_files.is_empty());
    assert!(config.params.0.is_empty() && !config.proxy_from_environment);
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
        ("timeout: 1s", "url", "urls"),
        ("url: 'http://p', urls: ['http://q']", "urls", "one of them"),
        ("urls: []", "urls", "1 to 8"),
        ("urls: ['http://p', 'http://q/?a=b']", "urls[1]", "params"),
        ("urls: ['http://p', 'http://p/']", "urls[1]", "once"),
        ("urls: ['http://p', 'https://q']", "urls[1]", "one of them"),
        ("urls: ['http://p'], caFile: /ca", "caFile", "https"),
        (
            "url: 'http://p', headerFiles: {X-A: ''}",
            "headerFiles.X-A",
            "path",
        ),
        (
            "url: 'http://p', headerFiles: {X-A: /a, x-a: /b}",
            "headerFiles.x-a",
            "once",
        ),
        (
            "url: 'http://p', headerFiles: {X-A: /a}, headers: {x-a: b}",
            "headerFiles.X-A",
            "remove the other",
        ),
        (
            "url: 'http://p', headerFiles: {Host: /a}",
            "headerFiles.Host",
            "remove",
        ),
        (
            "url: 'http://p', headerFiles: {Authorization: /a}, bearerTokenFile: /t",
            "headerFiles.Authorization",
            "remove the other",
        ),
        (
            "url: 'http://p', params: {query: up}",
            "params.query",
            "remove",
        ),
        (
            "url: 'http://p', params: {time: 1}",
            "params.time",
            "remove",
        ),
        (
            "url: 'http://p', params: {timeout: 1h}",
            "params.timeout",
            "remove",
        ),
        ("url: 'http://p', params: {'': 1}", "params.", "name"),
        (
            "url: 'http://p', params: {a: []}",
            "params.a",
            "at least one",
        ),
        (
            "url: 'http://p', basicAuth: {username: u, passwordFile: /p}, oauth2: {tokenURL: \
             'http://t', clientID: c, clientSecretFile: /s}",
            "oauth2",
            "one of them",
        ),
        (
            "url: 'http://p', bearerTokenFile: /t, oauth2: {tokenURL: 'http://t', clientID: c, \
             clientSecretFile: /s}",
            "oauth2",
            "one of them",
        ),
        (
            "url: 'http://p', oauth2: {tokenURL: 'http://u:secret@t', clientID: c, \
             clientSecretFile: /s}",
            "oauth2.tokenURL",
            "clientSecretFile",
        ),
        (
            "url: 'http://p', oauth2: {tokenURL: t, clientID: c, clientSecretFile: /s}",
            "oauth2.tokenURL",
            "such as https://",
        ),
        (
            "url: 'http://p', oauth2: {tokenURL: 'http://t', clientID: '', clientSecretFile: /s}",
            "oauth2.clientID",
            "client",
        ),
        (
            "url: 'http://p', oauth2: {tokenURL: 'http://t', clientID: c, clientSecretFile: ''}",
            "oauth2.clientSecretFile",
            "path",
        ),
        (
            "url: 'http://p', oauth2: {tokenURL: 'http://t', clientID: c, clientSecretFile: /s, \
             scopes: ['a b']}",
            "oauth2.scopes[0]",
            "one scope a line",
        ),
        (
            "url: 'http://p', oauth2: {tokenURL: 'http://t', clientID: c, clientSecretFile: /s, \
             endpointParams: {grant_type: password}}",
            "oauth2.endpointParams.grant_type",
            "remove",
        ),
        (
            "url: 'http://p', oauth2: {tokenURL: 'http://t', clientID: c, clientSecretFile: /s, \
             tls: {caFile: /ca}}",
            "oauth2.tls.caFile",
            "https",
        ),
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

#[test]
fn what_multi_tenant_servers_need_is_taken() {
    let config = read(
        "urls: ['https://a/prometheus', 'https://b/prometheus'], proxyFromEnvironment: true, \
         headerFiles: {X-Scope-OrgID: /tenant}, \
         params: {dedup: true, 'extra_filters[]': [a, b], max: 5}, \
         oauth2: {tokenURL: 'https://t/token?x=y', clientID: c, clientSecretFile: /s, \
         scopes: [read, write], endpointParams: {audience: metrics}, tls: {caFile: /ca}}",
    )
    .unwrap();
    assert_eq!(config.urls.len(), 2);
    assert!(config.proxy_from_environment);
    assert_eq!(config.header_files[0].0, "x-scope-orgid");
    let params: Vec<(&str, &str)> = (config.params.0.iter())
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        params,
        [
            ("dedup", "true"),
            ("extra_filters[]", "a"),
            ("extra_filters[]", "b"),
            ("max", "5")
        ]
    );
    let Credentials::OAuth2(oauth2) = config.credentials else {
        panic!("no OAuth2")
    };
    assert_eq!(oauth2.scope, "read write");
    assert_eq!(oauth2.tls.trust, Trust::CaFile("/ca".into()));
}
