//! What the columns of a query may be.

use slidegate::limit::{Quota, Quotas};
use slidegate::policy::KeyHash;
use slidegate_customers::{KeyAnswer, KnownKey, PostgresConfig};
use slidegate_testbed::wait_until;

use crate::reader::{Reader, SERVER, config, digest, insert, known, ms, table_of};

/// The answer for `k1` from a query without a table.
fn answer(query: &str, hash: KeyHash) -> KeyAnswer {
    let database = SERVER.database();
    database.sql("create type tier as enum ('free', 'pro'); create extension citext");
    let config = PostgresConfig { query: query.to_owned(), hash, ..config(database.url()) };
    let reader = Reader::loaded(config);
    assert_eq!(reader.log(), "", "{query}");
    reader.find("k1")
}

fn of_customer(customer: &str) -> KeyAnswer {
    let customer = Some(customer.into());
    KeyAnswer::Known(KnownKey { customer, plan: None, quotas: None, expires: None })
}

#[test]
fn digests_are_text_or_bytes() {
    let sha256 = [
        "encode(sha256('k1'), 'hex')",
        "upper(encode(sha256('k1'), 'hex'))",
        "encode(sha256('k1'), 'hex')::varchar(64)",
        "encode(sha256('k1'), 'hex')::char(64)",
        "encode(sha256('k1'), 'hex')::citext",
        "sha256('k1')",
    ];
    for digest in sha256 {
        let query = format!("select {digest} as digest, 'acme' as customer");
        assert_eq!(answer(&query, KeyHash::Sha256), of_customer("acme"), "{digest}");
    }
    let own = KeyHash::Slidegate.hex(b"k1");
    for digest in [format!("'{own}'"), format!("'\\x{own}'::bytea")] {
        let query = format!("select {digest} as digest, 'acme' as customer");
        assert_eq!(answer(&query, KeyHash::Slidegate), of_customer("acme"), "{digest}");
    }
}

#[test]
fn customers_are_text_or_numbers() {
    let uuid = "0192f7a2-6c1e-7cc0-98c4-dc0c0c07398f";
    for (customer, expected) in [
        ("'acme'::varchar", "acme"),
        ("'acme'::name", "acme"),
        ("42::smallint", "42"),
        ("42::int", "42"),
        ("-9007199254740993::bigint", "-9007199254740993"),
        (&format!("'{uuid}'::uuid"), uuid),
    ] {
        let query = format!("select sha256('k1') as digest, {customer} as customer, 'x' as unused");
        assert_eq!(answer(&query, KeyHash::Sha256), of_customer(expected), "{customer}");
    }
}

#[test]
fn plans_quotas_and_expiries_are_read() {
    let pro = KnownKey { customer: None, plan: Some("pro".into()), quotas: None, expires: None };
    for plan in ["'pro'::text", "'pro'::tier", "'pro'::char(8)"] {
        let query = format!(
            "select sha256('k1') as digest, {plan} as plan, '' as customer, null::text as quotas, \
             'infinity'::timestamptz as expires"
        );
        assert_eq!(answer(&query, KeyHash::Sha256), KeyAnswer::Known(pro.clone()), "{plan}");
    }
    let quotas = Quotas::new([Quota::per_minute(600), Quota::per_day(10_000)]).ok();
    for text in [
        "'600/min, 10000/day'",
        "array['600/min', '10000/day']",
        "'{600/min, 10000/day}'::varchar[]",
        "'[\"600/min\", \"10000/day\"]'::jsonb",
    ] {
        let query = format!("select sha256('k1') as digest, {text} as quotas");
        let expected = KnownKey { plan: None, quotas: quotas.clone(), ..pro.clone() };
        assert_eq!(answer(&query, KeyHash::Sha256), KeyAnswer::Known(expected), "{text}");
    }
    for (expires, expected) in [
        ("'1969-12-31 23:00+00'::timestamptz as expires", KeyAnswer::Unknown),
        ("'-infinity'::timestamptz as expires_at", KeyAnswer::Unknown),
        ("null::timestamptz as expires_at", KeyAnswer::Known(pro.clone())),
        ("'9999-12-31 00:00+00'::timestamptz as expires_at", KeyAnswer::Known(pro)),
    ] {
        let query = format!("select sha256('k1') as digest, 'pro' as plan, {expires}");
        assert_eq!(answer(&query, KeyHash::Sha256), expected, "{expires}");
    }
}

const MIGRATE: &str = include_str!("../../../../docs/migrate.md");

/// The first query of several lines below a heading.
fn documented(page: &str, heading: &str) -> String {
    let (_, section) = page.split_once(heading).unwrap();
    section.split("\"\"\"").nth(1).expect("a query of several lines").to_owned()
}

/// On columns of the types that Kong's have.
#[test]
fn the_documented_query_reads_kongs_tables() {
    let query = documented(MIGRATE, "## From Kong's key-auth plugin");
    let database = SERVER.database();
    database.sql(
        "create table consumers (id uuid primary key default gen_random_uuid(),
             created_at timestamptz default now(), username text, custom_id text, tags text[]);
         create table keyauth_credentials (id uuid primary key default gen_random_uuid(),
             created_at timestamptz default now(), consumer_id uuid references consumers (id),
             key text unique, tags text[], ttl timestamptz, ws_id uuid);
         create table consumer_groups (id uuid primary key default gen_random_uuid(),
             created_at timestamptz default now(), name text, ws_id uuid);
         create table consumer_group_consumers (created_at timestamptz default now(),
             consumer_group_id uuid references consumer_groups (id),
             consumer_id uuid references consumers (id),
             primary key (consumer_group_id, consumer_id));
         insert into consumers (username, custom_id) values ('ann', null), ('bob', 'acme');
         insert into consumer_groups (name) values ('pro'), ('free');
         insert into consumer_group_consumers (consumer_group_id, consumer_id, created_at)
             select g.id, c.id, '2026-01-01'::timestamptz + (g.name = 'free')::int * interval '1 d'
             from consumer_groups g, consumers c where c.username = 'bob';
         insert into keyauth_credentials (key, consumer_id, ttl)
             select key, c.id, ttl from consumers c, (values
                 ('k1', 'ann', null), ('k2', 'bob', null), ('k\u{fc}', 'bob', 'infinity'),
                 ('k4', 'bob', '2020-01-01'::timestamptz), ('k5', 'bob', '2100-01-01')
             ) as k (key, username, ttl) where c.username = k.username",
    );
    let reader = Reader::loaded(PostgresConfig { query, ..config(database.url()) });
    assert_eq!(reader.find("k1"), of_customer("ann"));
    for key in ["k2", "k\u{fc}"] {
        assert_eq!(reader.find(key), known("acme"), "in two groups, of which the first counts");
    }
    assert_eq!(reader.find("k4"), KeyAnswer::Unknown, "its ttl is over");
    let later = reader.find("k5");
    assert!(matches!(later, KeyAnswer::Known(KnownKey { expires: Some(_), .. })), "{later:?}");
    assert_eq!(reader.log(), "");
}

#[test]
fn the_documented_query_reads_digests_of_unkey() {
    let query = documented(MIGRATE, "## From Unkey");
    let database = SERVER.database();
    database.sql(
        "create table unkey_keys (hash text primary key, external_id text, plan text,
             expires timestamptz, updated_at timestamptz not null default now());
         insert into unkey_keys values ('arnx6499M4j0+dWG9m6Z/VQIDfLERvDlhmiwnAihbdA=', 'acme', 'pro')",
    );
    let reader = Reader::loaded(PostgresConfig { query, ..config(database.url()) });
    assert_eq!((reader.find("k1"), reader.find("k2")), (known("acme"), KeyAnswer::Unknown));
    database.sql("update unkey_keys set expires = '-infinity', updated_at = clock_timestamp()");
    reader.wait_for("k1", &KeyAnswer::Unknown);
    assert_eq!(reader.log(), "");
}

#[test]
fn the_documented_query_joins_keys_and_organisations() {
    let page = include_str!("../../../../docs/how-to.md");
    let query = documented(page, "## Plans from your database");
    let database = SERVER.database();
    database.sql(
        "create table organisations (id int primary key, slug text, plan text,
             updated_at timestamptz not null default now() - interval '1 day');
         create table api_keys (key_hash bytea primary key, organisation_id int references organisations,
             expires_at timestamptz, revoked_at timestamptz,
             updated_at timestamptz not null default now() - interval '1 day');
         insert into organisations values (1, 'acme', 'pro'), (2, 'initech', 'free');
         insert into api_keys
             select sha256(key::bytea), organisation, '2100-01-01'
             from (values ('k1', 1), ('k2', 1), ('k3', 2)) as k (key, organisation)",
    );
    let reader = Reader::loaded(PostgresConfig { query, ..config(database.url()) });
    let of = |key: &str| match reader.find(key) {
        KeyAnswer::Known(KnownKey { customer: Some(customer), plan: Some(plan), .. }) => {
            format!("{customer} {plan}")
        }
        other => format!("{other:?}"),
    };
    assert_eq!(["k1", "k2", "k3"].map(of), ["acme pro", "acme pro", "initech free"]);
    database.sql("update organisations set plan = 'pro', updated_at = now() where id = 2");
    wait_until("the upgrade", || of("k3") == "initech pro");
    database.sql(
        "update api_keys set revoked_at = now(), updated_at = now() where key_hash = sha256('k1')",
    );
    reader.wait_for("k1", &KeyAnswer::Unknown);
    assert_eq!(of("k2"), "acme pro");
    assert_eq!(reader.log(), "");
}

#[test]
fn a_query_that_cannot_be_used_is_an_error_in_words() {
    let database = table_of(&SERVER, 1);
    for (query, error) in [
        ("select customer, plan from api_keys", "no column digest, only customer, plan"),
        ("select digest, customer from keys", "relation \"keys\" does not exist (SQLSTATE 42P01)"),
        ("selekt digest", "syntax error at or near"),
        (
            "select digest, plan, expires_at::timestamp from api_keys",
            "the column expires_at is of type timestamp; expected timestamptz",
        ),
        (
            "select digest, plan, expires_at, changed_at::text from api_keys",
            "the column changed_at is of type text; expected timestamptz",
        ),
        (
            "select digest, plan, digest::int::text as customer from api_keys",
            "bad data (SQLSTATE 22P02)",
        ),
        (
            "select digest, null as plan from api_keys",
            "none of the 1 rows can be used: 1 that have",
        ),
        ("delete from api_keys returning digest", "syntax error"),
    ] {
        let reader =
            Reader::start(PostgresConfig { query: query.to_owned(), ..config(database.url()) });
        reader.wait_for_error(error);
        assert_eq!(reader.find("k1"), KeyAnswer::Unavailable, "{query}");
        assert_eq!(reader.find("k2"), KeyAnswer::Unavailable, "{query}");
        let digest = digest("k1");
        assert!(!reader.log().contains(digest.trim_matches('\'')), "{}", reader.log());
    }
    assert_eq!(database.sql("select count(*) from api_keys"), "1");
}

#[test]
fn other_columns_are_not_asked_for() {
    let database = table_of(&SERVER, 1);
    let query = "select digest, customer, plan, digest::int as fails from api_keys".to_owned();
    let reader = Reader::loaded(PostgresConfig { query, ..config(database.url()) });
    assert_eq!(reader.find("k1"), known("c1"));
}

#[test]
fn bad_rows_are_skipped_with_one_line_that_counts_them() {
    let database = table_of(&SERVER, 3);
    database.sql("alter table api_keys drop constraint api_keys_pkey, alter digest drop not null");
    let reader = Reader::loaded(PostgresConfig { full: ms(100), ..config(database.url()) });
    assert_eq!(reader.log(), "");
    let (k1, k2) = (digest("k1"), digest("k2"));
    database.sql(&format!(
        "insert into api_keys (digest, customer, plan, quotas) values \
         ('k-secret', 'c', null, null), (null, 'c', null, null), ({k1}::text || '00', 'c', null, null), \
         (encode(sha256('a'), 'hex'), repeat('c', 257), null, null), \
         (encode(sha256('b'), 'hex'), null, 'no plan', null), \
         (encode(sha256('g'), 'hex'), '  ', 'pro', null), \
         (encode(sha256('c'), 'hex'), null, null, 'many'), \
         (encode(sha256('d'), 'hex'), null, null, null), \
         (encode(sha256('e'), 'hex'), 'c', 'pro', '5/s'); \
         update api_keys set quotas = '600/minute of each hour', changed_at = now() where digest = {k2}"
    ));
    wait_until("the good row", || matches!(reader.find("e"), KeyAnswer::Known(_)));
    insert(&database, "k4", "c4");
    reader.wait_for("k4", &known("c4"));
    assert_eq!(reader.find("k2"), known("c2"), "its row is bad: it stays as it was known");
    for key in ["a", "b", "c", "d", "g"] {
        assert_eq!(reader.find(key), KeyAnswer::Unavailable, "{key}: it was issued");
    }
    assert_eq!(reader.find("f"), KeyAnswer::Unknown);
    for part in [
        "3 whose digest is not one of the configured hash",
        "2 whose customer is blank or has more than 256 bytes",
        "1 whose plan is not a name",
        "2 whose quotas are not of the form",
        "1 that have none of customer, plan and quotas",
    ] {
        assert!(reader.log().contains(part), "{part}: {}", reader.log());
    }
    let digest = k1.trim_matches('\'');
    assert!(!reader.log().contains(digest) && !reader.log().contains("k-secret"));
    assert_eq!((reader.log().lines().count(), reader.error()), (1, String::new()));
}

#[test]
fn of_two_rows_with_one_digest_the_last_counts_and_they_are_logged() {
    let database = SERVER.database();
    let query = "select sha256('k1') as digest, 'c' || i as customer, 'pro' as plan \
                 from generate_series(1, 3) as i";
    let config = PostgresConfig { query: query.to_owned(), ..config(database.url()) };
    let reader = Reader::loaded(config);
    assert_eq!((reader.find("k1"), reader.keys()), (known("c3"), 1));
    assert_eq!(reader.logged("repeated=2"), 1, "{}", reader.log());
}
