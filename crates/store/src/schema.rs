//! The tables, as both engines have them.

diesel::table! {
    users (id) {
        id -> BigInt,
        username -> Text,
        name -> Text,
        email -> Text,
        search_text -> Text,
        password_hash -> Text,
        state -> Text,
        admin -> Bool,
        external -> Bool,
        can_create_group -> Bool,
        projects_limit -> Integer,
        bio -> Nullable<Text>,
        location -> Nullable<Text>,
        skype -> Text,
        linkedin -> Text,
        twitter -> Text,
        website_url -> Text,
        organization -> Nullable<Text>,
        confirmed_at -> Nullable<BigInt>,
        current_sign_in_at -> Nullable<BigInt>,
        last_sign_in_at -> Nullable<BigInt>,
        created_at -> BigInt,
        updated_at -> BigInt,
    }
}

diesel::table! {
    namespaces (id) {
        id -> BigInt,
        parent_id -> Nullable<BigInt>,
        kind -> Text,
        owner_id -> Nullable<BigInt>,
        name -> Text,
        path -> Text,
        full_path -> Text,
        description -> Text,
        created_at -> BigInt,
        updated_at -> BigInt,
    }
}

diesel::table! {
    emails (id) {
        id -> BigInt,
        user_id -> BigInt,
        email -> Text,
        is_primary -> Bool,
        created_at -> BigInt,
    }
}

diesel::table! {
    identities (id) {
        id -> BigInt,
        user_id -> BigInt,
        provider -> Text,
        extern_uid -> Text,
    }
}

diesel::table! {
    keys (id) {
        id -> BigInt,
        user_id -> BigInt,
        title -> Text,
        key -> Text,
        fingerprint -> Text,
        created_at -> BigInt,
    }
}

diesel::table! {
    tokens (id) {
        id -> BigInt,
        user_id -> BigInt,
        name -> Text,
        digest -> Binary,
        scopes -> Text,
        expires_at -> Nullable<BigInt>,
        revoked_at -> Nullable<BigInt>,
        last_used_at -> Nullable<BigInt>,
        created_at -> BigInt,
    }
}

diesel::table! {
    jobs (id) {
        id -> BigInt,
        kind -> Text,
        payload -> Text,
        singleton -> Nullable<Text>,
        attempts -> Integer,
        run_at -> BigInt,
        leased_until -> Nullable<BigInt>,
        dead_at -> Nullable<BigInt>,
        last_error -> Nullable<Text>,
        created_at -> BigInt,
    }
}

diesel::joinable!(tokens -> users (user_id));
diesel::joinable!(keys -> users (user_id));
diesel::allow_tables_to_appear_in_same_query!(users, tokens, keys, identities);

#[diesel::declare_sql_function]
extern "SQL" {
    /// Lower case; on SQLite ours, so that both engines know more letters than ASCII has.
    fn lower(text: diesel::sql_types::Text) -> diesel::sql_types::Text;
}
