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
        personal_projects -> Integer,
        bio -> Nullable<Text>,
        location -> Nullable<Text>,
        skype -> Text,
        linkedin -> Text,
        twitter -> Text,
        website_url -> Text,
        organization -> Nullable<Text>,
        avatar -> Nullable<Text>,
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
        visibility -> Integer,
        share_with_group_lock -> Bool,
        request_access_enabled -> Bool,
        lfs_enabled -> Nullable<Bool>,
        name_key -> Text,
        path_key -> Text,
        avatar -> Nullable<Text>,
    }
}

diesel::table! {
    group_members (id) {
        id -> BigInt,
        group_id -> BigInt,
        user_id -> BigInt,
        access_level -> Integer,
        expires_at -> Nullable<BigInt>,
        created_at -> BigInt,
    }
}

diesel::table! {
    project_members (id) {
        id -> BigInt,
        project_id -> BigInt,
        user_id -> BigInt,
        access_level -> Integer,
        expires_at -> Nullable<BigInt>,
        created_at -> BigInt,
    }
}

diesel::table! {
    projects (id) {
        id -> BigInt,
        namespace_id -> Nullable<BigInt>,
        creator_id -> BigInt,
        name -> Text,
        path -> Text,
        name_key -> Text,
        path_key -> Text,
        search_text -> Text,
        description -> Nullable<Text>,
        visibility -> Integer,
        archived -> Bool,
        star_count -> BigInt,
        forks_count -> BigInt,
        issues_enabled -> Bool,
        merge_requests_enabled -> Bool,
        wiki_enabled -> Bool,
        builds_enabled -> Bool,
        snippets_enabled -> Bool,
        container_registry_enabled -> Bool,
        shared_runners_enabled -> Bool,
        public_builds -> Bool,
        only_allow_merge_if_build_succeeds -> Bool,
        only_allow_merge_if_all_discussions_are_resolved -> Bool,
        request_access_enabled -> Bool,
        lfs_enabled -> Nullable<Bool>,
        runners_seed -> Binary,
        created_at -> BigInt,
        updated_at -> BigInt,
        last_activity_at -> BigInt,
        deleted_at -> Nullable<BigInt>,
        default_branch -> Nullable<Text>,
        runners_digest -> Nullable<Binary>,
    }
}

diesel::table! {
    project_shares (id) {
        id -> BigInt,
        project_id -> BigInt,
        group_id -> BigInt,
        group_access -> Integer,
        expires_at -> Nullable<BigInt>,
        created_at -> BigInt,
    }
}

diesel::table! {
    project_storage (project_id) {
        project_id -> BigInt,
        storage_id -> Text,
    }
}

diesel::table! {
    project_stars (user_id, project_id) {
        user_id -> BigInt,
        project_id -> BigInt,
        created_at -> BigInt,
    }
}

diesel::table! {
    uploads (id) {
        id -> BigInt,
        project_id -> BigInt,
        user_id -> BigInt,
        secret -> Text,
        name -> Text,
        size -> Nullable<BigInt>,
        complete -> Bool,
        created_at -> BigInt,
    }
}

diesel::table! {
    avatars (id) {
        id -> BigInt,
        user_id -> Nullable<BigInt>,
        project_id -> Nullable<BigInt>,
        group_id -> Nullable<BigInt>,
        storage_id -> Text,
        name -> Text,
        content_type -> Text,
        size -> Nullable<BigInt>,
        is_current -> Bool,
        created_at -> BigInt,
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
        session -> Bool,
    }
}

diesel::table! {
    web_sessions (id) {
        id -> BigInt,
        user_id -> BigInt,
        digest -> Binary,
        created_at -> BigInt,
        last_used_at -> BigInt,
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

diesel::table! {
    protected_branches (id) {
        id -> BigInt,
        project_id -> BigInt,
        name -> Text,
        push_level -> Integer,
        merge_level -> Integer,
        created_at -> BigInt,
    }
}

diesel::table! {
    releases (id) {
        id -> BigInt,
        project_id -> BigInt,
        tag_name -> Text,
        description -> Text,
        created_at -> BigInt,
        updated_at -> BigInt,
    }
}

diesel::table! {
    ref_intents (id) {
        id -> BigInt,
        project_id -> BigInt,
        user_id -> Nullable<BigInt>,
        head -> Nullable<Text>,
        protect_name -> Nullable<Text>,
        protect_push -> Nullable<Integer>,
        protect_merge -> Nullable<Integer>,
        created_at -> BigInt,
    }
}

diesel::table! {
    ref_intent_changes (intent_id, position) {
        intent_id -> BigInt,
        position -> Integer,
        ref_name -> Text,
        old_oid -> Nullable<Text>,
        new_oid -> Nullable<Text>,
    }
}

diesel::table! {
    events (id) {
        id -> BigInt,
        project_id -> BigInt,
        author_id -> BigInt,
        action -> Integer,
        target_type -> Nullable<Text>,
        target_id -> Nullable<BigInt>,
        intent_id -> Nullable<BigInt>,
        created_at -> BigInt,
        issue_id -> Nullable<BigInt>,
        note_id -> Nullable<BigInt>,
        milestone_id -> Nullable<BigInt>,
        commit_note_id -> Nullable<BigInt>,
    }
}

diesel::table! {
    push_events (event_id) {
        event_id -> BigInt,
        ref_name -> Text,
        before -> Text,
        after -> Text,
        total_commits -> BigInt,
    }
}

diesel::table! {
    push_commits (event_id, position) {
        event_id -> BigInt,
        position -> Integer,
        sha -> Text,
        message -> Text,
        author_name -> Text,
        author_email -> Text,
        seconds -> BigInt,
        offset_seconds -> Integer,
    }
}

diesel::table! {
    fork_links (id) {
        id -> BigInt,
        project_id -> BigInt,
        source_id -> BigInt,
        created_at -> BigInt,
        updated_at -> BigInt,
    }
}

diesel::table! {
    deploy_keys (id) {
        id -> BigInt,
        title -> Text,
        key -> Text,
        fingerprint -> Text,
        created_at -> BigInt,
    }
}

diesel::table! {
    deploy_key_projects (key_id, project_id) {
        key_id -> BigInt,
        project_id -> BigInt,
        created_at -> BigInt,
    }
}

diesel::table! {
    project_imports (project_id) {
        project_id -> BigInt,
        status -> Text,
        url -> Text,
        credentials -> Nullable<Binary>,
        error -> Nullable<Text>,
        started_at -> Nullable<BigInt>,
        finished_at -> Nullable<BigInt>,
        requester_id -> Nullable<BigInt>,
    }
}

diesel::table! {
    labels (id) {
        id -> BigInt,
        project_id -> BigInt,
        title -> Text,
        title_key -> Text,
        color -> Text,
        description -> Nullable<Text>,
        priority -> Nullable<BigInt>,
        open_issues -> BigInt,
        closed_issues -> BigInt,
        open_confidential -> BigInt,
        closed_confidential -> BigInt,
        created_at -> BigInt,
        updated_at -> BigInt,
    }
}

diesel::table! {
    label_subscriptions (label_id, user_id) {
        label_id -> BigInt,
        user_id -> BigInt,
        created_at -> BigInt,
    }
}

diesel::table! {
    milestones (id) {
        id -> BigInt,
        project_id -> BigInt,
        iid -> BigInt,
        title -> Text,
        description -> Nullable<Text>,
        closed -> Bool,
        start_on -> Nullable<BigInt>,
        due_on -> Nullable<BigInt>,
        created_at -> BigInt,
        updated_at -> BigInt,
    }
}

diesel::table! {
    issues (id) {
        id -> BigInt,
        project_id -> BigInt,
        iid -> BigInt,
        title -> Text,
        description -> Nullable<Text>,
        closed -> Bool,
        reopened -> Bool,
        confidential -> Bool,
        author_id -> Nullable<BigInt>,
        assignee_id -> Nullable<BigInt>,
        milestone_id -> Nullable<BigInt>,
        updated_by_id -> Nullable<BigInt>,
        moved_to_id -> Nullable<BigInt>,
        due_on -> Nullable<BigInt>,
        user_notes -> BigInt,
        created_at -> BigInt,
        updated_at -> BigInt,
    }
}

diesel::table! {
    issue_texts (issue_id) {
        issue_id -> BigInt,
        search_text -> Text,
    }
}

diesel::table! {
    issue_labels (issue_id, label_id) {
        issue_id -> BigInt,
        label_id -> BigInt,
        closed -> Bool,
        confidential -> Bool,
        milestone_id -> Nullable<BigInt>,
        created_at -> BigInt,
        updated_at -> BigInt,
    }
}

diesel::table! {
    issue_subscriptions (issue_id, user_id) {
        issue_id -> BigInt,
        user_id -> BigInt,
        subscribed -> Bool,
    }
}

diesel::table! {
    notes (id) {
        id -> BigInt,
        project_id -> BigInt,
        issue_id -> BigInt,
        author_id -> Nullable<BigInt>,
        updated_by_id -> Nullable<BigInt>,
        body -> Text,
        system -> Bool,
        created_at -> BigInt,
        updated_at -> BigInt,
    }
}

diesel::table! {
    issue_books (project_id) {
        project_id -> BigInt,
        last_issue -> BigInt,
        last_milestone -> BigInt,
        open_issues -> BigInt,
        closed_issues -> BigInt,
        open_confidential -> BigInt,
        closed_confidential -> BigInt,
    }
}

diesel::table! {
    boards (id) {
        id -> BigInt,
        project_id -> BigInt,
        created_at -> BigInt,
    }
}

diesel::table! {
    board_lists (id) {
        id -> BigInt,
        board_id -> BigInt,
        label_id -> BigInt,
        position -> BigInt,
        created_at -> BigInt,
        deleted_at -> Nullable<BigInt>,
    }
}

diesel::table! {
    intent_mentions (intent_id, position) {
        intent_id -> BigInt,
        position -> BigInt,
        issue_id -> BigInt,
        sha -> Text,
        closes -> Bool,
    }
}

diesel::table! {
    hooks (id) {
        id -> BigInt,
        project_id -> Nullable<BigInt>,
        url -> Binary,
        token -> Nullable<Binary>,
        receiver -> Text,
        enable_ssl_verification -> Bool,
        push_events -> Bool,
        tag_push_events -> Bool,
        issues_events -> Bool,
        confidential_issues_events -> Bool,
        merge_requests_events -> Bool,
        note_events -> Bool,
        build_events -> Bool,
        pipeline_events -> Bool,
        wiki_page_events -> Bool,
        created_at -> BigInt,
        updated_at -> BigInt,
        due_at -> Nullable<BigInt>,
        leased_until -> Nullable<BigInt>,
        failures -> Integer,
        paused_at -> Nullable<BigInt>,
        pause_reason -> Nullable<Text>,
    }
}

diesel::table! {
    hook_events (id) {
        id -> BigInt,
        occasion -> Integer,
        project_id -> Nullable<BigInt>,
        depth -> Integer,
        seed -> Text,
        intent_id -> Nullable<BigInt>,
        ref_name -> Nullable<Text>,
        waiting -> Bool,
        created_at -> BigInt,
        size -> BigInt,
        payload -> Text,
    }
}

diesel::table! {
    hook_deliveries (id) {
        id -> BigInt,
        hook_id -> BigInt,
        event_id -> BigInt,
        state -> Integer,
        attempts -> Integer,
        due_at -> BigInt,
        created_at -> BigInt,
        first_tried_at -> Nullable<BigInt>,
        finished_at -> Nullable<BigInt>,
        tried_at -> Nullable<BigInt>,
        duration -> Nullable<BigInt>,
        status -> Nullable<Integer>,
        error -> Nullable<Text>,
        sent_to -> Nullable<Binary>,
        signed -> Nullable<Bool>,
        response_headers -> Nullable<Text>,
        response_body -> Nullable<Text>,
    }
}

diesel::table! {
    commit_notes (id) {
        id -> BigInt,
        project_id -> BigInt,
        sha -> Text,
        author_id -> Nullable<BigInt>,
        body -> Text,
        path -> Nullable<Text>,
        line -> Nullable<BigInt>,
        line_type -> Nullable<Text>,
        created_at -> BigInt,
    }
}

diesel::table! {
    instance (id) {
        id -> BigInt,
        instance_id -> Text,
        generation -> BigInt,
        mark -> Text,
        previous_mark -> Nullable<Text>,
        key_check -> Nullable<Binary>,
    }
}

diesel::table! {
    nodes (id) {
        id -> Text,
        name -> Text,
        version -> Text,
        addresses -> Text,
        state -> Text,
        started_at -> BigInt,
        heartbeat_at -> BigInt,
    }
}

diesel::table! {
    instance_secrets (id) {
        id -> BigInt,
        name -> Text,
        secret -> Binary,
    }
}

diesel::table! {
    instance_seeds (name) {
        name -> Text,
        seed -> Binary,
    }
}

diesel::table! {
    runners (id) {
        id -> BigInt,
        seed -> Binary,
        digest -> Binary,
        description -> Text,
        active -> Bool,
        is_shared -> Bool,
        run_untagged -> Bool,
        locked -> Bool,
        tags -> Text,
        maximum_timeout -> Nullable<BigInt>,
        name -> Nullable<Text>,
        version -> Nullable<Text>,
        revision -> Nullable<Text>,
        platform -> Nullable<Text>,
        architecture -> Nullable<Text>,
        contacted_at -> Nullable<BigInt>,
        created_at -> BigInt,
        updated_at -> BigInt,
    }
}

diesel::table! {
    runner_projects (runner_id, project_id) {
        runner_id -> BigInt,
        project_id -> BigInt,
        created_at -> BigInt,
    }
}

diesel::table! {
    ci_variables (id) {
        id -> BigInt,
        project_id -> BigInt,
        key -> Text,
        value -> Binary,
    }
}

diesel::table! {
    ci_triggers (id) {
        id -> BigInt,
        project_id -> BigInt,
        seed -> Binary,
        digest -> Binary,
        created_at -> BigInt,
        updated_at -> BigInt,
        last_used -> Nullable<BigInt>,
    }
}

diesel::table! {
    pipelines (id) {
        id -> BigInt,
        project_id -> BigInt,
        ref_name -> Text,
        tag -> Bool,
        sha -> Text,
        before_sha -> Nullable<Text>,
        source -> Text,
        status -> Text,
        yaml_errors -> Nullable<Text>,
        stages -> Text,
        user_id -> Nullable<BigInt>,
        trigger_id -> Nullable<BigInt>,
        variables -> Nullable<Binary>,
        intent_id -> Nullable<BigInt>,
        plan -> Nullable<Text>,
        created_at -> BigInt,
        updated_at -> BigInt,
        started_at -> Nullable<BigInt>,
        finished_at -> Nullable<BigInt>,
        duration -> Nullable<BigInt>,
    }
}

diesel::table! {
    build_specs (id) {
        id -> BigInt,
        project_id -> BigInt,
        spec -> Text,
    }
}

diesel::table! {
    builds (id) {
        id -> BigInt,
        project_id -> BigInt,
        pipeline_id -> BigInt,
        kind -> Integer,
        name -> Text,
        stage -> Text,
        stage_index -> Integer,
        status -> Text,
        start_when -> Text,
        allow_failure -> Bool,
        retried -> Bool,
        attempt -> Integer,
        user_id -> Nullable<BigInt>,
        runner_id -> Nullable<BigInt>,
        spec_id -> Nullable<BigInt>,
        needs -> Nullable<Text>,
        tags -> Text,
        timeout -> Nullable<BigInt>,
        coverage -> Nullable<Double>,
        failure_reason -> Nullable<Text>,
        target_url -> Nullable<Text>,
        description -> Nullable<Text>,
        created_at -> BigInt,
        queued_at -> Nullable<BigInt>,
        started_at -> Nullable<BigInt>,
        finished_at -> Nullable<BigInt>,
        erased_at -> Nullable<BigInt>,
    }
}

diesel::table! {
    build_runs (build_id) {
        build_id -> BigInt,
        seed -> Binary,
        digest -> Binary,
        taken_at -> BigInt,
        heard_at -> Nullable<BigInt>,
        trace_size -> BigInt,
        trace_held -> BigInt,
        secrets -> Nullable<Binary>,
        trace_withheld -> Nullable<Binary>,
    }
}

diesel::table! {
    trace_objects (id) {
        id -> BigInt,
        job_id -> Nullable<BigInt>,
        storage_id -> Text,
        size -> Nullable<BigInt>,
        created_at -> BigInt,
    }
}

diesel::table! {
    trace_segments (job_id, start) {
        job_id -> BigInt,
        start -> BigInt,
        size -> BigInt,
        object_id -> Nullable<BigInt>,
        content -> Nullable<Binary>,
    }
}

diesel::table! {
    build_artifacts (id) {
        id -> BigInt,
        project_id -> BigInt,
        build_id -> BigInt,
        kind -> Text,
        name -> Text,
        size -> Nullable<BigInt>,
        created_at -> BigInt,
        expires_at -> Nullable<BigInt>,
    }
}

diesel::table! {
    repositories (id) {
        id -> BigInt,
        project_id -> BigInt,
        generation -> BigInt,
        pack_epoch -> BigInt,
        refs_bytes -> BigInt,
        unreachable_since -> Nullable<BigInt>,
        created_at -> BigInt,
        drop_epoch -> BigInt,
    }
}

diesel::table! {
    refs (repository_id, name) {
        repository_id -> BigInt,
        name -> Text,
        target -> Text,
        peeled -> Nullable<Text>,
    }
}

diesel::table! {
    packs (id) {
        id -> BigInt,
        file_key -> Text,
        checksum -> Text,
        bytes -> BigInt,
        objects -> BigInt,
        created_at -> BigInt,
    }
}

diesel::table! {
    pack_contents (pack_id) {
        pack_id -> BigInt,
        pack_data -> Binary,
        index_data -> Binary,
    }
}

diesel::table! {
    repository_packs (repository_id, pack_id) {
        repository_id -> BigInt,
        pack_id -> BigInt,
        dead_since -> Nullable<BigInt>,
        unreachable_since -> Nullable<BigInt>,
    }
}

diesel::table! {
    unconverted_repositories (project_id) {
        project_id -> BigInt,
    }
}

diesel::joinable!(tokens -> users (user_id));
diesel::joinable!(emails -> users (user_id));
diesel::joinable!(web_sessions -> users (user_id));
diesel::joinable!(keys -> users (user_id));
diesel::joinable!(namespaces -> users (owner_id));
diesel::joinable!(projects -> namespaces (namespace_id));
diesel::joinable!(group_members -> users (user_id));
diesel::joinable!(project_members -> users (user_id));
diesel::joinable!(project_shares -> namespaces (group_id));
diesel::joinable!(events -> users (author_id));
diesel::joinable!(push_events -> events (event_id));
diesel::joinable!(fork_links -> projects (project_id));
diesel::joinable!(project_imports -> projects (project_id));
diesel::joinable!(project_storage -> projects (project_id));
diesel::joinable!(deploy_key_projects -> deploy_keys (key_id));
diesel::joinable!(deploy_key_projects -> projects (project_id));
diesel::joinable!(label_subscriptions -> labels (label_id));
diesel::joinable!(issues -> projects (project_id));
diesel::joinable!(issues -> milestones (milestone_id));
diesel::joinable!(issue_labels -> labels (label_id));
diesel::joinable!(issue_labels -> issues (issue_id));
diesel::joinable!(notes -> users (author_id));
diesel::joinable!(notes -> issues (issue_id));
diesel::joinable!(issue_books -> projects (project_id));
diesel::joinable!(boards -> projects (project_id));
diesel::joinable!(board_lists -> boards (board_id));
diesel::joinable!(board_lists -> labels (label_id));
diesel::joinable!(intent_mentions -> issues (issue_id));
diesel::joinable!(hook_deliveries -> hooks (hook_id));
diesel::joinable!(hook_deliveries -> hook_events (event_id));
diesel::joinable!(commit_notes -> users (author_id));
diesel::joinable!(runner_projects -> runners (runner_id));
diesel::joinable!(runner_projects -> projects (project_id));
diesel::joinable!(pipelines -> users (user_id));
diesel::joinable!(builds -> pipelines (pipeline_id));
diesel::joinable!(builds -> users (user_id));
diesel::joinable!(builds -> runners (runner_id));
diesel::joinable!(builds -> build_specs (spec_id));
diesel::joinable!(build_runs -> builds (build_id));
diesel::joinable!(trace_segments -> trace_objects (object_id));
diesel::joinable!(repositories -> projects (project_id));
diesel::joinable!(refs -> repositories (repository_id));
diesel::joinable!(repository_packs -> packs (pack_id));
diesel::joinable!(pack_contents -> packs (pack_id));
diesel::allow_tables_to_appear_in_same_query!(
    users,
    emails,
    tokens,
    web_sessions,
    keys,
    identities,
    namespaces,
    projects,
    group_members,
    project_members,
    project_shares,
    events,
    push_events,
    fork_links,
    deploy_keys,
    deploy_key_projects,
    project_imports,
    project_storage,
    labels,
    label_subscriptions,
    milestones,
    issues,
    issue_labels,
    issue_subscriptions,
    notes,
    issue_books,
    boards,
    board_lists,
    intent_mentions,
    hooks,
    hook_events,
    hook_deliveries,
    commit_notes,
    runners,
    runner_projects,
    ci_variables,
    ci_triggers,
    pipelines,
    build_specs,
    builds,
    build_runs,
    trace_objects,
    trace_segments,
    build_artifacts,
    repositories,
    refs,
    packs,
    pack_contents,
    repository_packs,
);

#[diesel::declare_sql_function]
extern "SQL" {
    /// Lower case; on SQLite ours, so that both engines know more letters than ASCII has.
    fn lower(text: diesel::sql_types::Text) -> diesel::sql_types::Text;
}
