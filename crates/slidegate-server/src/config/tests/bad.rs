//! Files that are wrong: each problem with its line, key, value and what was expected.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::file;
use super::schema::problems;
use crate::config::sources::text;

/// Values and keys of a bad form, which the schema refuses too: a section or key to begin with, the bad
/// line, and the error.
const BAD_FORM: &[(&str, &str)] = &[
    (
        "profile = 'loud'",
        "test.toml:1: profile = \"loud\": expected development, staging, production or strict",
    ),
    ("profil = 'strict'", "test.toml:1: profil: unknown key: did you mean profile?"),
    ("banana = 1", "test.toml:1: banana: unknown key: expected admin, api_key, audit, blocked,"),
    ("gateway = 1", "test.toml:1: gateway = 1: expected a table"),
    ("policy = 'x'", "test.toml:1: policy = (a string): expected a table"),
    (
        "[decisions]\nsettle_within = '61min'",
        "test.toml:2: decisions.settle_within = \"61min\": expected at most 1h",
    ),
    (
        "[decisions]\nsettle_within = '500ms'",
        "test.toml:2: decisions.settle_within = \"500ms\": expected at least 1s",
    ),
    (
        "[resp]\nlisten = '8083'",
        "test.toml:2: resp.listen = \"8083\": expected an address and a port",
    ),
    (
        "[resp]\nport = 8083",
        "test.toml:2: resp.port: unknown key: expected listen, on_store_error,",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[trace]\nratio = 0.1",
        "test.toml:3: trace.otlp: missing: expected a collector's URL, such as http://127.0.0.1:4317",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[trace]\notlp = 'localhost:4317'",
        "test.toml:4: trace.otlp = \"localhost:4317\": expected http or https, a host and perhaps a port, and no path, such as http://127.0.0.1:4317",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[trace]\notlp = 'http://a:4318/v1/traces'",
        "test.toml:4: trace.otlp = \"http://a:4318/v1/traces\": expected http or https, a host",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[trace]\notlp = 'http://me:hunter2@a'",
        "test.toml:4: trace.otlp = (hidden): expected http or https",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[trace]\notlp = 'http://a'\nratio = 1.5",
        "test.toml:5: trace.ratio = 1.5: expected a number from 0 to 1, such as 0.1",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[trace]\notlp = 'http://a'\nratio = '10%'",
        "test.toml:5: trace.ratio = \"10%\": expected a number from 0 to 1, such as 0.1",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[trace]\notlp = 'http://a'\nratio = nan",
        "test.toml:5: trace.ratio = nan: expected a number from 0 to 1",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[trace]\notlp = 'http://a'\nidentity = 'yes'",
        "test.toml:5: trace.identity = ",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[trace]\notlp = 'http://a'\nservice_name = ''",
        "test.toml:5: trace.service_name = \"\": expected a name",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[trace]\notlp = 'http://a'\nsample = 1",
        "test.toml:5: trace.sample: unknown key: expected ",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[standing]\npaht = '/x'",
        "test.toml:4: standing.paht: unknown key: did you mean path?",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[standing]\npath = 'limits'",
        "test.toml:4: standing.path = \"limits\": expected the path as clients send it",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[standing]\npath = '/{user}/limits'",
        "test.toml:4: standing.path = \"/{user}/limits\": expected the path as clients send it",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[standing]\npath = '/limits?x=1'",
        "test.toml:4: standing.path = \"/limits?x=1\": expected the path as clients send it",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[standing]\nquotas = '30'",
        "test.toml:4: standing.quotas = \"30\"",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[standing]\nquotas = []",
        "test.toml:4: standing.quotas = (a list): no quotas: expected at least one",
    ),
    (
        "[key_source]",
        "test.toml:1: key_source.url: missing: expected where keys are known: postgres://",
    ),
    (
        "[key_source]\nurl = 'mysql://hunter2@a/b'",
        "test.toml:2: key_source.url = (hidden): expected postgres://, http:// or https://",
    ),
    (
        "[key_source]\nurl = 'postgres://u@a/b'",
        "test.toml:1: key_source.query: missing: expected a query for the keys",
    ),
    (
        "[key_source]\nurl = 'postgres://u@a/b'\nquery = 'select 1'\nfresh = '1s'",
        "test.toml:4: key_source.fresh: only for a source that is asked over HTTP",
    ),
    (
        "[key_source]\nurl = 'postgres://u@a/b'\nquery = 'select 1'\npoll = '1ms'",
        "test.toml:4: key_source.poll = \"1ms\": expected at least 100ms",
    ),
    (
        "[key_source]\nurl = 'https://a/keys'",
        "test.toml:2: key_source.url = (hidden): expected {digest} where the key's digest goes",
    ),
    (
        "[key_source]\nurl = 'https://a/{digest}'\nquery = 'select 1'",
        "test.toml:3: key_source.query: only for PostgreSQL",
    ),
    (
        "[key_source]\nurl = 'https://a/{digest}'\nhash = 'md5'",
        "test.toml:3: key_source.hash = \"md5\": \"md5\" is not how keys are digested: expected slidegate",
    ),
    (
        "[[jwt]]\njwks = 'https://a/'\naudience = 'api'\nalgorithms = ['RS256']\nuser = 'sub'",
        "test.toml:1: jwt[0].issuer: missing: expected the iss claim",
    ),
    (
        "[[jwt]]\nissuer = 'a'\njwks = 'https://a/'\nalgorithms = ['RS256']\nuser = 'sub'",
        "test.toml:1: jwt[0].audience: missing: expected the aud claim",
    ),
    (
        "[[jwt]]\nissuer = 'a'\njwks = 'https://a/'\naudience = 'api'\nuser = 'sub'",
        "test.toml:1: jwt[0].algorithms: missing: expected a list such as",
    ),
    (
        "[[jwt]]\nissuer = 'a'\njwks = 'https://a/'\naudience = 'api'\nalgorithms = ['HS256']\nuser = 'sub'",
        "test.toml:5: jwt[0].algorithms[0] = \"HS256\":",
    ),
    (
        "[[jwt]]\nissuer = 'a'\njwks = 'ftp://a/'\naudience = 'api'\nalgorithms = ['RS256']\nuser = 'sub'",
        "test.toml:3: jwt[0].jwks = \"ftp://a/\": expected a URL with http:// or https://, or a file",
    ),
    (
        "[[jwt]]\nissuer = 'a'\njwks = 'https://a/'\naudience = 'api'\nalgorithms = ['RS256']",
        "test.toml:1: jwt[0].user: missing: expected a claim, such as sub, in user or customer",
    ),
    (
        "[[jwt]]\nissuer = 'a'\njwks = 'https://a/'\naudience = 'api'\nalgorithms = ['RS256']\nuser = 'sub'\ninvalid = 'deny'",
        "test.toml:7: jwt[0].invalid = \"deny\": expected ignore or refuse",
    ),
    (
        "[[api_key]]\ncustomer = 'acme'\nkey = 'k'\nexpires = 'soon'",
        "test.toml:4: api_key[0].expires = \"soon\": expected an instant such as 2027-01-01T00:00:00Z",
    ),
    (
        "[gateway]\nupstream = []",
        "test.toml:2: gateway.upstream = (a list): expected http or https",
    ),
    (
        "[gateway]\nupstream = 'localhost:3000'",
        "test.toml:2: gateway.upstream = \"localhost:3000\": expected http or https, a host",
    ),
    (
        "[gateway]\nupstream = ['http://a',\n 'http://b/c']",
        "test.toml:3: gateway.upstream[1] = \"http://b/c\": expected http or https",
    ),
    (
        "[gateway]\nupstream = 'http://me:hunter2@a'",
        "test.toml:2: gateway.upstream = (hidden): expected http or https",
    ),
    (
        "[gateway]\nupstream = 'http://a'\nlisten = 8080",
        "test.toml:3: gateway.listen = 8080: expected a string",
    ),
    (
        "[gateway]\nupstream = 'http://a'\nlisten = ':80'",
        "test.toml:3: gateway.listen = \":80\": expected an address and a port",
    ),
    (
        "[gateway]\nupstream = 'http://a'\nlisten = []",
        "test.toml:3: gateway.listen = (a list): expected at least one address",
    ),
    (
        "[gateway]\nupstream = 'http://a'\nclient_address = 'x-forwarded'",
        "test.toml:3: gateway.client_address = \"x-forwarded\": \"x-forwarded\" is not a source of client addresses: expected peer",
    ),
    (
        "[gateway]\nupstream = 'http://a'\nhost = 'drop'",
        "test.toml:3: gateway.host = \"drop\": expected keep or upstream",
    ),
    (
        "[gateway]\nupstream = 'http://a'\nworkers = 0",
        "test.toml:3: gateway.workers = 0: expected a whole number from 1 to 1024",
    ),
    (
        "[gateway]\nupstream = 'http://a'\nworkers = '4'",
        "test.toml:3: gateway.workers = \"4\": expected a whole number",
    ),
    (
        "[gateway]\nupstream = 'http://a'\nproxy_protocol = 'v2'",
        "test.toml:3: gateway.proxy_protocol = \"v2\": expected true or false",
    ),
    (
        "[gateway]\nupstream = 'http://a'\nencoded_slashes = 'drop'",
        "test.toml:3: gateway.encoded_slashes = \"drop\": expected decode or keep",
    ),
    (
        "[gateway]\nupstream = 'http://a'\npath_parameters = 'drop'",
        "test.toml:3: gateway.path_parameters = \"drop\": expected cut or keep",
    ),
    (
        "[gateway]\nupstream = 'http://a'\ntls = { certificate = 'a.pem' }",
        "test.toml:3: gateway.tls.key: missing: expected the path of a PEM file",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[gateway.timeouts]\nidle = 60",
        "test.toml:4: gateway.timeouts.idle = 60: expected a string",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[gateway.timeouts]\nidle = '0s'",
        "test.toml:4: gateway.timeouts.idle = \"0s\": expected a length of time",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[gateway.timeouts]\nidle = '2d'",
        "test.toml:4: gateway.timeouts.idle = \"2d\": expected at most 1d",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[gateway.timeouts]\nread = '2s'",
        "test.toml:4: gateway.timeouts.read: unknown key: did you mean head?",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[gateway.bounds]\nhead_bytes = 10",
        "test.toml:4: gateway.bounds.head_bytes = 10: expected a whole number from 8192 to 16777216",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[gateway.bounds]\nbody_rate = -1",
        "test.toml:4: gateway.bounds.body_rate = -1: expected a whole number from 0 to 4294967295",
    ),
    (
        "[[gateway.route]]\nprefix = 'api'\nupstream = 'http://b'",
        "test.toml:2: gateway.route[0].prefix = \"api\": expected the beginning of a path",
    ),
    (
        "[[gateway.route]]\nprefix = '/api'",
        "test.toml:1: gateway.route[0].upstream: missing: expected a URL",
    ),
    ("[admin]\ntoken = ''", "test.toml:2: admin.token = (hidden): expected at least one character"),
    (
        "[decisions]\nlisten = '127.0.0.1:8081'\ntoken = '  '",
        "test.toml:3: decisions.token = (hidden): expected a token that is not white space",
    ),
    (
        "[blocked]\nauthorizations = ['Basic bWFsbG9yeTpzdG9sZW4']",
        "test.toml:2: blocked.authorizations",
    ),
    ("unknown_keys = 'reject'", "test.toml:1: unknown_keys = \"reject\": expected"),
    ("identities_per_address = 0", "test.toml:1: identities_per_address = 0: expected"),
    ("[admin]\ntoken = ['hunter2']", "test.toml:2: admin.token = (hidden): expected a string"),
    (
        "[rls]\ntls = { certificate = 'a' }",
        "test.toml:2: rls.tls.key: missing: expected the path of a PEM file",
    ),
    (
        "[[policy]]\nname = 'a'\nquotas = '1/s'\nmatch = { domain = 'edge' }",
        "test.toml:4: policy[0].match.descriptors: missing: expected descriptors, such as",
    ),
    (
        "[[policy]]\nname = 'a'\nquotas = '1/s'\nmatch = { domain = 'edge', descriptors = { a = 1 } }",
        "test.toml:4: policy[0].match.descriptors.a = 1: expected a string",
    ),
    ("[store]\nkind = 'disk'", "test.toml:2: store.kind = \"disk\": expected memory or redis"),
    (
        "[store]\nurl = 'http://:hunter2@a'",
        "test.toml:2: store.url: the Redis URL has the scheme \"http\": expected redis",
    ),
    (
        "[store]\nurl = 'redis://a'\nlayout = 'list'",
        "test.toml:3: store.layout = \"list\": unknown layout \"list\": expected packed or sorted-set",
    ),
    (
        "[store]\nurl = 'redis://a'\nlayout = 'sorted-set'\nscore_unit = 'minutes'",
        "test.toml:4: store.score_unit = \"minutes\": \"minutes\" is no unit of scores: expected s, ms, us or ns",
    ),
    (
        "[store]\nurl = 'redis://a'\ndeadline = '2min'",
        "test.toml:3: store.deadline = \"2min\": expected at most 1min",
    ),
    (
        "[store]\nurl = 'redis://a'\nshare = '2/4'",
        "test.toml:3: store.share = \"2/4\": invalid share \"2/4\": expected",
    ),
    (
        "[store]\nurl = 'redis://a'\nkey_template = 'rl:<policy>'",
        "test.toml:3: store.key_template = \"rl:<policy>\": key template",
    ),
    (
        "[store]\nurl = 'rediss://a'\nkey = 'me.key'",
        "test.toml:3: store.key: expected its certificate too",
    ),
    ("[store]\nsnapshot = { every = '1min' }", "test.toml:2: store.snapshot.file: missing"),
    (
        "[store]\ncapacity = 0",
        "test.toml:2: store.capacity = 0: expected a whole number from 1 to 2147483647",
    ),
    (
        "[headers]\ndialects = ['draft-99']",
        "test.toml:2: headers.dialects[0] = \"draft-99\": \"draft-99\" is not a dialect of headers: expected ietf-draft-11",
    ),
    (
        "[refusal]\nshape = 'loud'",
        "test.toml:2: refusal.shape = \"loud\": \"loud\" is not a shape of refusals: expected problem",
    ),
    (
        "[refusal]\ntemplate = 'wait {seconds}'",
        "test.toml:2: refusal.template = \"wait {seconds}\": {seconds} is not a placeholder",
    ),
    (
        "[refusal]\ncontent_type = \"a\\nb\"\ntemplate = 'x'",
        "test.toml:2: refusal.content_type = \"a\\nb\": ",
    ),
    ("[refusal]", "test.toml:1: refusal.shape: missing"),
    (
        "[plans.free]",
        "test.toml:1: plans.free.quotas: no quotas: expected at least one, such as 60/min",
    ),
    (
        "[plans.free]\nquotas = ['60/min', '60/mn']",
        "test.toml:2: plans.free.quotas[1] = \"60/mn\": \"mn\" is not a window: expected",
    ),
    (
        "[plans.free]\nquotas = '1/s'\nupgrade_url = 'app'",
        "test.toml:3: plans.free.upgrade_url = \"app\": expected a URL",
    ),
    (
        "[plans.'a b']\nquotas = '1/s'",
        "test.toml:1: plans.\"a b\" = \"a b\": \"a b\" is not a name: expected up to 64 letters",
    ),
    ("[[policy]]\nquotas = '1/s'", "test.toml:1: policy[0].name: missing: expected a name"),
    ("[[policy]]\nname = 'api'", "test.toml:1: policy[0].quotas: no quotas: expected at least one"),
    (
        "[[policy]]\nname = 'api'\nqoutas = '1/s'\nquotas = '1/s'",
        "test.toml:3: policy[0].qoutas: unknown key: did you mean quotas?",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '0/s'",
        "test.toml:3: policy[0].quotas = \"0/s\": \"0\" are not units: expected a whole number from 1",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '1/s'\nmatch = { method = 'post' }",
        "test.toml:4: policy[0].match.method = \"post\": methods are case-sensitive and written in capitals: did you mean \"POST\"?",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '1/s'\nmatch = { method = 'A B' }",
        "test.toml:4: policy[0].match.method = \"A B\": expected a method such as GET",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '1/s'\nmatch = { path = '/api/*' }",
        "test.toml:4: policy[0].match.path = \"/api/*\": * and : are no wildcards here: did you mean \"/api/{*rest}\"?",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '1/s'\nexempt = { paths = '/users/:id' }",
        "test.toml:4: policy[0].exempt.paths = \"/users/:id\": * and : are no wildcards here: did you mean \"/users/{id}\"?",
    ),
    (
        "[blocked]\npaths = ['/ok', '/internal/*']",
        "test.toml:2: blocked.paths[1] = \"/internal/*\": * and : are no wildcards here: did you mean \"/internal/{*rest}\"?",
    ),
    (
        "[exempt]\npaths = '/static/**'",
        "test.toml:2: exempt.paths = \"/static/**\": * and : are no wildcards here: did you mean \"/static/{*rest}\"?",
    ),
    (
        "[[gateway.route]]\nprefix = '/api/*'\nupstream = 'http://b'",
        "test.toml:2: gateway.route[0].prefix = \"/api/*\": expected the beginning of a path",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '1/s'\nmatch = { paths = ['/a', 'b'] }",
        "test.toml:4: policy[0].match.paths[1] = \"b\": expected a path that starts with /",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '1/s'\nidentity = []",
        "test.toml:4: policy[0].identity = \"[]\": expected at least one identity source",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '1/s'\nidentity = ['ip', 'cookie']",
        "test.toml:4: policy[0].identity[1] = \"cookie\": \"cookie\" is not an identity source: expected user",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '1/s'\nidentity = 'apikey'",
        "test.toml:4: policy[0].identity = \"apikey\": \"apikey\" is not an identity source: expected user, customer, api-key, authorization, ip, header:NAME, descriptor:KEY or everyone; did you mean \"api-key\"?",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '10k/day'",
        "test.toml:3: policy[0].quotas = \"10k/day\": \"10k\" are not units: expected a whole number from 1 to 4294967295; did you mean 10000?",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '5/min'\non_store_error = 'open'",
        "test.toml:4: policy[0].on_store_error = \"open\": \"open\" is not an action on a store's error: expected local, allow or deny; did you mean \"allow\"?",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '1/s'\nidentity = { ip = { v6 = 129 } }",
        "test.toml:4: policy[0].identity.ip.v6 = 129: expected a whole number from 1 to 128",
    ),
    (
        "[[policy]]\nname = 'api'\nplan = { header = 'x plan', default = 'p' }\n[plans.p]\nquotas = '1/s'",
        "test.toml:3: policy[0].plan.header = \"x plan\": expected the name of a header",
    ),
    (
        "[gateway]\nupstream = 'http://a'\nuser_header = 'x user'",
        "test.toml:3: gateway.user_header = \"x user\": expected the name of a header",
    ),
    (
        "[[policy]]\nname = 'api'\nplan = { header = 'x-plan' }",
        "test.toml:3: policy[0].plan.default: missing: expected the name of a plan",
    ),
    (
        "[[policy]]\nname = 'api'\nplan = 'free'\nquotas = '1/s'\n[plans.free]\nquotas = '1/s'",
        "test.toml:4: policy[0].quotas = \"1/s\": a policy has either quotas or plans, not both",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '10/min'\ncount = { status = [401] }\nrefund = { status = [500] }",
        "test.toml:4: policy[0].count = \"401\": a policy has either count or refund",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '10/min'\ncount = { status = [] }",
        "test.toml:4: policy[0].count = \"[]\": expected at least one status",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '10/min'\ncount = { status = [99] }",
        "test.toml:4: policy[0].count.status[0] = 99: expected a whole number from 100 to 599",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '10/min'\nrefund = { status = ['6xx'] }",
        "test.toml:4: policy[0].refund.status[0] = \"6xx\": ",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '10/min'\ncount = {}",
        "test.toml:4: policy[0].count.status: missing: expected statuses, such as",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '10/min'\ncount = 401",
        "test.toml:4: policy[0].count = 401: expected a table",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '10/min'\ncount = { statuses = [401] }",
        "test.toml:4: policy[0].count.statuses: unknown key: did you mean status?",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '10/min'\ncost = { response_json = 'usage..x' }",
        "test.toml:4: policy[0].cost.response_json = \"usage..x\": ",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '10/min'\ncost = { response_header = 'x cost' }",
        "test.toml:4: policy[0].cost.response_header = \"x cost\": expected the name of a header",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '10/min'\ncost = { hold = 5 }",
        "test.toml:4: policy[0].cost = (a table): expected response_json = ",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '10/min'\ncost = { response_json = 'a', hold = 0 }",
        "test.toml:4: policy[0].cost.hold = 0: expected a whole number from 1",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '10/min'\ncharge = 'always'",
        "test.toml:4: policy[0].charge = \"always\": expected record or admit",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '5/min'\ncost = 0",
        "test.toml:4: policy[0].cost = 0: expected a whole number from 1",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '5/min'\nban = { for = '1h' }",
        "test.toml:4: policy[0].ban.after: missing: expected how many denials",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '5/min'\nban = { after = '20/min', for = 'an hour' }",
        "test.toml:4: policy[0].ban.for = \"an hour\": expected a length of time",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '5/min'\nscope = 'global'",
        "test.toml:4: policy[0].scope = \"global\": expected shared or local",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '5/min'\ncandidate = {}",
        "test.toml:4: policy[0].candidate.quotas",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '5/min'\ncandidate = '4/min'",
        "test.toml:4: policy[0].candidate = (a string): expected a table",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '5/min'\ncandidate = { quotas = 'few' }",
        "test.toml:4: policy[0].candidate.quotas = \"few\": \"few\" is not a quota",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '5/min'\nconsistency = 'eventual'",
        "test.toml:4: policy[0].consistency = \"eventual\": expected sync or async",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '5/min'\nlease = '100ms'",
        "test.toml:4: policy[0].lease = \"100ms\": only a policy with consistency = \"async\" has leases",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '5/min'\non_store_error = 'panic'",
        "test.toml:4: policy[0].on_store_error = \"panic\": \"panic\" is not an action on a store's error: expected local",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '5/min'\nexempt = { paths = ['status'] }",
        "test.toml:4: policy[0].exempt.paths[0] = \"status\": expected a path that starts with /",
    ),
    (
        "[[api_key]]\nplan = 'free'\n[plans.free]\nquotas = '1/s'",
        "test.toml:1: api_key[0].key: missing: expected key, key_file or digest",
    ),
    ("[[api_key]]\nkey = 'hunter2'\n", "test.toml:1: api_key[0].plan: missing"),
    (
        "[[api_key]]\nname = 'a'\ndigest = 5\nplan = 'p'\n[plans.p]\nquotas = '1/s'",
        "test.toml:3: api_key[0].digest = (hidden): expected a string",
    ),
    ("api_key = ['hunter2']", "test.toml:1: api_key[0] = (hidden): expected a table"),
    (
        "[exempt]\nnetworks = ['10.0.0.0/33']",
        "test.toml:2: exempt.networks[0] = \"10.0.0.0/33\": \"10.0.0.0/33\" is not a network: expected an address",
    ),
    ("[exempt]\nusers = [42]", "test.toml:2: exempt.users[0] = 42: expected a string"),
    (
        "[blocked]\npaths = 'x'",
        "test.toml:2: blocked.paths = \"x\": expected a path that starts with /",
    ),
    (
        "[blocked]\nheaders = { 'x y' = 'hunter2' }",
        "test.toml:2: blocked.headers.\"x y\" = (hidden): expected the name of a header",
    ),
    ("[log]\nformat = 'xml'", "test.toml:2: log.format = \"xml\": expected auto, json or pretty"),
    (
        "[log]\nlevel = 'loud=very'",
        "test.toml:2: log.level = \"loud=very\": \"very\" is no level: expected off, error, warn, info, debug or trace",
    ),
    (
        "[log]\nlevel = 'warning'",
        "test.toml:2: log.level = \"warning\": \"warning\" is no level: expected off, error, warn, info, debug or trace; did you mean warn?",
    ),
    (
        "[log]\nlevel = 'info,hyper=wran'",
        "test.toml:2: log.level = \"info,hyper=wran\": \"wran\" is no level: expected off, error, warn, info, debug or trace; did you mean warn?",
    ),
    (
        "[log]\nlevel = 'slidegate'",
        "test.toml:2: log.level = \"slidegate\": \"slidegate\" is no level: expected off",
    ),
    (
        "[log]\nlevel = 'slidgate=debug'",
        "test.toml:2: log.level = \"slidgate=debug\": nothing of slidegate itself would be logged: expected a level too, such as info,slidgate=debug",
    ),
    ("[log]\nlevel = ''", "test.toml:2: log.level = \"\": \"\" is no level: expected off"),
    ("[audit]", "test.toml:1: audit.file: missing: expected the path of a file"),
    (
        "[audit]\nfile = 'a'\nkeep = -1",
        "test.toml:3: audit.keep = -1: expected a whole number from 0",
    ),
    ("x = ", "test.toml:1: this is not TOML: "),
    ("[log]\n[log]", "test.toml:2: this is not TOML: duplicate key"),
];

/// What has a good form, and is wrong for what is elsewhere: in the file, in other files and on the
/// machine. No schema knows that.
const BAD_MEANING: &[(&str, &str)] = &[
    (
        "[trace]\notlp = 'http://a:4317'",
        "test.toml:1: trace = (a table): there is no gateway whose requests could be traced: expected gateway.upstream",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[trace]\notlp = 'http://a'\nca = 'ca.pem'",
        "test.toml:5: trace.ca: only for an https collector",
    ),
    (
        "[resp]\nlisten = '0.0.0.0:8083'",
        "test.toml:2: resp.listen = \"0.0.0.0:8083\": reachable from other hosts, but no token is set: set SLIDEGATE_RESP_TOKEN or resp.token_file",
    ),
    (
        "[resp]\nlisten = '127.0.0.1:8081'\n[decisions]",
        "test.toml:2: resp.listen = \"127.0.0.1:8081\": address already used by test.toml:3: decisions.listen",
    ),
    (
        "[resp]\n[[policy]]\nname = 'throttle'\nquotas = '1/s'",
        "test.toml:3: policy[0].name = \"throttle\": [resp] has a policy of this name",
    ),
    (
        "[standing]",
        "test.toml:1: standing = (a table): there is no gateway that could answer: expected gateway.upstream",
    ),
    (
        "[key_source]\nurl = 'https://a/{digest}'\nfresh = '1h'\nstale = '1s'",
        "test.toml:4: key_source.stale = \"1s\": expected at least as long as fresh",
    ),
    ("[gateway]", "test.toml:1: gateway.upstream: missing: expected where allowed requests go"),
    (
        "[gateway]\nlisten = '127.0.0.1:1'\nignore_case = true",
        "test.toml:1: gateway.upstream: missing",
    ),
    (
        "[gateway]\nupstream = 'http://a'\ntrusted_proxies = '10.0.0.1/8'",
        "test.toml:3: gateway.trusted_proxies = \"10.0.0.1/8\": \"10.0.0.1/8\" is not a network: bits after the prefix are set; did you mean 10.0.0.0/8?",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[gateway.bounds]\nconnections = 5\nconnections_per_address = 6",
        "test.toml:5: gateway.bounds.connections_per_address = 6: expected at most connections, which is 5",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[gateway.bounds]\nin_flight_per_address = 10001",
        "test.toml:4: gateway.bounds.in_flight_per_address = 10001: expected at most in_flight, which is 10000",
    ),
    (
        "[gateway]\nupstream = 'http://a'\n[[gateway.route]]\nprefix = '/'\nupstream = 'http://b'",
        "test.toml:4: gateway.route[0].prefix = \"/\": another route has this prefix",
    ),
    (
        "[admin]\nlisten = '127.0.0.1:8081'",
        "test.toml:2: admin.listen = \"127.0.0.1:8081\": address already used by default: decisions.listen",
    ),
    (
        "[admin]\nlisten = '0.0.0.0:9090'\ntoken = 'fifteen letters'",
        "test.toml:3: admin.token = (hidden): reachable from other hosts, which can try to guess it: expected a token of at least 16 characters",
    ),
    (
        "[admin]\ntoken = 'hunter2'\ntoken_file = 'x'",
        "test.toml:3: admin.token_file = \"x\": a token is given already",
    ),
    (
        "[admin]\ntoken_file = '/does/not/exist'",
        "test.toml:2: admin.token_file = \"/does/not/exist\": the file cannot be read: No such file",
    ),
    (
        "[admin]\nlisten = ['127.0.0.1:9090', '0.0.0.0:9091']",
        "test.toml:2: admin.listen[1] = \"0.0.0.0:9091\": reachable from other hosts, but no token is set: set SLIDEGATE_ADMIN_TOKEN or admin.token_file, or listen on 127.0.0.1",
    ),
    (
        "[decisions]\nlisten = '[::]:8081'",
        "test.toml:2: decisions.listen = \"[::]:8081\": reachable from other hosts, but no token is set: set SLIDEGATE_DECISIONS_TOKEN or decisions.token_file, or listen on 127.0.0.1",
    ),
    (
        "[decisions]\ntoken = 'hunter2'\ntoken_file = 'x'",
        "test.toml:3: decisions.token_file = \"x\": a token is given already",
    ),
    (
        "[rls]\nlisten = '0.0.0.0:8082'",
        "test.toml:2: rls.listen = \"0.0.0.0:8082\": reachable from other hosts, but no token is set: set SLIDEGATE_RLS_TOKEN or rls.token_file, or listen on 127.0.0.1",
    ),
    (
        "[[policy]]\nname = 'a'\nquotas = '1/s'\nmatch = { domain = 'edge', descriptors = { a = '*' }, path = '/' }",
        "test.toml:4: policy[0].match.domain = \"edge\": descriptors have no method, path",
    ),
    (
        "[[policy]]\nname = 'a'\nquotas = '1/s'\nidentity = ['descriptor:b']\nmatch = { domain = 'edge', descriptors = { a = '*' } }",
        "test.toml:4: policy[0].identity[0] = \"descriptor:b\": descriptors have only a: expected descriptor:KEY",
    ),
    (
        "[[policy]]\nname = 'a'\nquotas = '1/s'\nidentity = 'descriptor:a'",
        "test.toml:4: policy[0].identity = \"descriptor:a\": requests have no descriptors",
    ),
    ("[store]\nkind = 'redis'", "test.toml:2: store.url: missing: expected where Redis is"),
    (
        "[store]\nkind = 'memory'\nurl = 'redis://:hunter2@a'",
        "test.toml:3: store.url: only for kind = \"redis\"",
    ),
    ("[store]\nlayout = 'packed'", "test.toml:2: store.layout: only for kind = \"redis\""),
    (
        "[store]\nurl = 'redis://a'\nscore_unit = 'ns'",
        "test.toml:3: store.score_unit: a unit of scores is given, but the layout packed has no scores",
    ),
    ("[store]\nscore_unit = 'ns'", "test.toml:2: store.score_unit: only for kind = \"redis\""),
    (
        "[store]\nurl = 'redis://a'\n[store.key_templates]\nnobody = '<identity>'",
        "test.toml:4: store.key_templates.nobody: there is no such policy",
    ),
    (
        "[store]\nurl = 'redis-cluster://a'\nkey_template = '<identity>:<window>'",
        "test.toml:3: store.key_template: the key template",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = ['1/s', '9/min']\n[store]\nurl = 'redis://a'\nkey_template = 'rl:<identity>'",
        "test.toml:6: store.key_template: the windows min and s of policy \"api\" would share Redis keys under the key template \"rl:<identity>\": add <window> to the template",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '9/min'\n[[policy]]\nname = 'login'\nquotas = '1/s'\n[store]\nurl = 'redis://a'\nkey_template = 'rl:<kind>:<identity>'",
        "test.toml:9: store.key_template: policies \"api\" and \"login\" would share Redis keys under the key template \"rl:<kind>:<identity>\": add <policy> to it, or give",
    ),
    (
        "[[policy]]\nname = 'api'\nidentity = 'user'\nquotas = '9/min'\n[[policy]]\nname = 'login'\nquotas = '1/s'\n[store]\nurl = 'redis://a'\nkey_template = 'rl:<identity>'\n[store.key_templates]\nlogin = 'rl:login:<identity>'",
        "test.toml:12: store.key_templates.login: policy \"api\" with the key template \"rl:<identity>\" and policy \"login\" with the key template \"rl:login:<identity>\" can share",
    ),
    (
        "[[policy]]\nname = 'api'\nplan = 'a'\n[plans.a]\nquotas = '9/min'\n[plans.b]\nquotas = '9/day'\n[store]\nurl = 'redis://a'\nkey_template = 'rl:<identity>'",
        "test.toml:10: store.key_template: the windows day and min of policy \"api\" would share",
    ),
    (
        "[store]\nurl = 'redis://a'\nca = 'ca.pem'",
        "test.toml:3: store.ca: certificates are given, but the URL does not ask for TLS",
    ),
    (
        "[store]\nurl = 'redis://a'\nsnapshot = { file = 'x' }",
        "test.toml:3: store.snapshot: only for kind = \"memory\"",
    ),
    (
        "[plans.free]\nquotas = ['60/min', '70/60s']",
        "test.toml:2: plans.free.quotas = \"60/min, 70/min\": 60/min and 70/min have the same window",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '1/s'\nmatch = { methods = ['PUT', 'GTE'] }",
        "test.toml:4: policy[0].match.methods[1] = \"GTE\": one letter away from GET: did you mean \"GET\"?",
    ),
    (
        "[[policy]]\nname = 'api'\nplan = 'gold'",
        "test.toml:3: policy[0].plan = \"gold\": there is no such plan, nor any other",
    ),
    (
        "[gateway]\nupstream = 'http://a'\nuser_header = 'Cookie'",
        "test.toml:3: gateway.user_header = \"cookie\": this header carries a secret, and user ids appear in logs: expected a header with the user's id alone, such as x-user-id",
    ),
    (
        "[gateway]\nupstream = 'http://a'\nuser_header = 'x_user_id'",
        "test.toml:1: gateway.underscores_in_headers: missing: the gateway drops headers with underscores in their names, so no request has x_user_id",
    ),
    (
        "[gateway]\nlisten = '127.0.0.1:80'\nuser_header = 'x-user-id'",
        "test.toml:1: gateway.upstream: missing",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '5/min'\ncost = 6",
        "test.toml:4: policy[0].cost = \"6\": no request could ever pass a quota of 5 units",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '10/min'\ncost = { response_json = 'a', hold = 11 }",
        "test.toml:4: policy[0].cost = \"11\": no request could ever pass a quota of 10 units",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '10/min'\ncharge = 'admit'",
        "test.toml:4: policy[0].charge = \"admit\": a request is only admitted if its cost fits",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '5/min'\ncandidate = { quotas = ['1/s', '2/s'] }",
        "test.toml:4: policy[0].candidate = \"1/s, 2/s\": 1/s and 2/s have the same window",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = ['5/s', '9/min']\nconsistency = 'async'\nlease = '200ms'",
        "test.toml:4: policy[0].consistency = \"async, leases of 200ms\": leases of 200ms need windows of at least 2s, and 5/s has less",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '5/min'\nconsistency = 'async'\nscope = 'local'",
        "test.toml:4: policy[0].consistency = \"async\": a local policy never waits",
    ),
    (
        "[[policy]]\nname = 'a'\nquotas = '5/min'\n[[policy]]\nname = 'a'\nquotas = '5/h'",
        "test.toml:5: policy[1].name = \"a\": another policy has this name",
    ),
    (
        "[[api_key]]\nkey = 'hunter2'\nplan = 'gold'",
        "test.toml:3: api_key[0].plan = \"gold\": there is no such plan",
    ),
];

#[test]
fn every_problem_has_its_line_key_value_and_what_was_expected() {
    for (text, expected) in BAD_FORM.iter().chain(BAD_MEANING) {
        let problem = file(text).map(|_| ()).unwrap_err();
        assert!(problem.starts_with(expected), "{text}\n  said {problem}\n  not  {expected}");
        assert_eq!(problem.lines().count(), 1, "one cause, one problem: {problem}");
        assert!(!problem.contains("hunter2"), "{problem}");
    }
}

#[test]
fn the_schema_refuses_every_bad_form_and_knows_no_meaning() {
    let is_toml = |text: &str| text.parse::<toml::Table>().is_ok();
    for (text, said) in BAD_FORM {
        assert!(!is_toml(text) || !problems(text).is_empty(), "the schema takes {text}\n{said}");
    }
    for (text, said) in BAD_MEANING {
        assert_eq!(problems(text), [""; 0], "a bad form after all: {text}\n{said}");
    }
}

#[test]
fn all_problems_are_reported_at_once_in_the_order_of_the_file() {
    let text = r#"
        profile = "loud"
        [gateway]
        upstream = 3
        trusted_proxies = ["10.0.0.0/8", "10.1.2.3/8"]
        [plans.free]
        quotas = ["60/min", "ten"]
        [[policy]]
        name = "two words"
        quotas = "5/min"
        cost = 6
        shadow = "yes"
        [[policy]]
        name = "api"
        plan = "gold"
        [log]
        format = "xml"
    "#;
    let problems = file(text).map(|_| ()).unwrap_err();
    let keys: Vec<&str> =
        problems.lines().skip(1).map(|line| line.split(" = ").next().unwrap()).collect();
    assert_eq!(
        keys,
        [
            "test.toml:2: profile",
            "test.toml:4: gateway.upstream",
            "test.toml:5: gateway.trusted_proxies[1]",
            "test.toml:7: plans.free.quotas[1]",
            "test.toml:9: policy[0].name",
            "test.toml:11: policy[0].cost",
            "test.toml:12: policy[0].shadow",
            "test.toml:15: policy[1].plan",
            "test.toml:17: log.format",
        ]
    );
    assert!(problems.starts_with("9 problems:\n"), "{problems}");
}

#[test]
fn an_invalid_plan_is_not_reported_as_missing() {
    let text = "[plans.free]\nquotas = '60/mn'\n[[policy]]\nname = 'a'\nplan = 'free'\ncost = 5\n";
    let problem = file(text).map(|_| ()).unwrap_err();
    assert!(problem.starts_with("test.toml:2: plans.free.quotas = "), "{problem}");
    let text = text.replace("'60/mn'", "['1/min', '2/min']").replace("cost = 5\n", "");
    let problem = file(&text).map(|_| ()).unwrap_err();
    assert!(problem.starts_with("test.toml:2: plans.free.quotas = "), "{problem}");
}

#[test]
fn what_is_not_toml_does_not_hide_what_is_wrong_elsewhere() {
    let text = "profile = 'loud'\n[log]\nformat = \n[audit]\nfile = 3\n";
    let problems = file(text).map(|_| ()).unwrap_err();
    assert!(problems.contains("test.toml:1: profile = \"loud\""), "{problems}");
    assert!(problems.contains("test.toml:3: this is not TOML"), "{problems}");
    assert!(problems.contains("test.toml:5: audit.file = 3"), "{problems}");
    assert!(!problems.contains("log.format"), "{problems}");
}

/// Loads a text. Whatever is in it, all problems have a line of it and say something, and what is not
/// TOML is one. Returns whether it was loaded.
fn is_loaded(written: &str) -> bool {
    let problems = match file(written) {
        Ok(_) => {
            assert!(written.parse::<toml::Table>().is_ok(), "loaded, but not TOML: {written:?}");
            return true;
        }
        Err(problems) => problems,
    };
    let mut lines: Vec<&str> = problems.lines().collect();
    if lines.len() > 1 {
        let header = format!("{} problems:", lines.len() - 1);
        assert_eq!(lines.remove(0), header, "{written:?}: {problems}");
    }
    for line in lines {
        let (number, problem) = line
            .strip_prefix("test.toml:")
            .and_then(|rest| rest.split_once(": "))
            .unwrap_or_else(|| panic!("{written:?}: no place in {line:?}"));
        let number: usize = number.parse().unwrap_or_else(|_| panic!("{written:?}: {line:?}"));
        let last = written.lines().count().max(1) + 1;
        assert!((1..=last).contains(&number) && !problem.is_empty(), "{written:?}: {line:?}");
    }
    false
}

/// Loads generated texts, and returns what part of them was loaded.
fn loaded_share<T: std::fmt::Debug>(
    strategy: &impl Strategy<Value = T>,
    written: impl Fn(T) -> String,
) -> f64 {
    let (tried, loaded) = (Cell::new(0_u32), Cell::new(0_u32));
    TestRunner::default()
        .run(strategy, |value| {
            tried.set(tried.get() + 1);
            loaded.set(loaded.get() + u32::from(is_loaded(&written(value))));
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
    f64::from(loaded.get()) / f64::from(tried.get())
}

proptest! {
    #[test]
    fn bytes_are_a_text_exactly_if_they_are_utf8(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            "\\PC{0,100}".prop_map(String::into_bytes),
        ],
    ) {
        let expected = std::str::from_utf8(&bytes).ok().map(str::to_owned);
        prop_assert_eq!(text("test.toml".as_ref(), bytes).ok(), expected);
    }
}

#[test]
fn any_text_is_loaded_or_has_problems_with_their_lines() {
    loaded_share(&"\\PC{0,200}", |written| written);
    loaded_share(&prop::collection::vec(any::<u8>(), 0..300), |bytes| {
        String::from_utf8_lossy(&bytes).into_owned()
    });
}

#[test]
fn any_lines_of_a_file_are_loaded_or_have_problems_with_their_lines() {
    let lines = prop::collection::vec(
        prop_oneof![
            prop::sample::select(vec![
                "[gateway]",
                "[[policy]]",
                "[plans.x]",
                "[[api_key]]",
                "[store]",
                "[exempt]",
                "match = {",
                "}",
                "name = 'x'",
                "quotas = ['1/s'",
                "]",
                "identity = [{ip={v4=0}}]",
                "plan = 'x'",
                "cost = 18446744073709551616",
                "upstream = 'http://\u{e9}'",
                "url = 'redis://'",
                "url = 'redis-cluster://@,'",
                "ban = {after='1/s',for='9d'}",
                "[[gateway.route]]",
                "prefix = ''",
                "key = \"\\u0000\"",
                "headers = {'' = ''}",
                "refusal = {template='{'}",
                "level = '['",
                "paths = ['{', '/{*}', '/{a}{b}']",
            ])
            .prop_map(str::to_owned),
            "[a-z_]{1,8} = [-0-9a-z'\"{}\\[\\].]{0,8}",
        ],
        0..12,
    );
    let share = loaded_share(&lines, |lines| lines.join("\n"));
    assert!((0.01..0.5).contains(&share), "{share}");
}
