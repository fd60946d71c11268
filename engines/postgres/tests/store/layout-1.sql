-- Layout 1 of the schema `pirn`: state of runs. The owners of runs are recorded in absurd's tasks.
--
-- 1. A run is one task of absurd's queue `pirn`. The id of the task's running attempt (absurd's run id) is the claim, and
--    every write of the run's owner names it. pirn.commit locks the attempt's row while it writes, so a commit is complete
--    before the attempt can be assigned to another process, or is refused.
-- 2. A commit is one call. It is atomic; a refusal is a row with a code, not an error.
-- 3. A writer numbers its commits: one that is sent again after a lost connection takes effect once.

create schema pirn;

create table pirn.layout(version integer not null);
insert into pirn.layout values (1);

create table pirn.runs(
  key bigint generated always as identity primary key,
  id text collate "C" not null unique,
  workflow text not null,
  definition bytea not null,
  contents bytea[] not null,
  semantics bigint not null,
  session text,
  base_run text,
  base_step bigint not null,
  status smallint not null,
  started_at bigint not null,
  updated_at bigint not null,
  steps bigint not null,
  is_hidden boolean not null default false,
  -- The run has written its session: the next run of the session may have the turn.
  has_left boolean not null default false,
  task uuid,
  writer uuid not null,
  commit_number bigint not null
) with (fillfactor = 70);
create index on pirn.runs(started_at, id);
create index on pirn.runs(started_at, id) where status < 4;
create index on pirn.runs(session, key) where session is not null;
create index on pirn.runs(task);
create index on pirn.runs(base_run) where base_run is not null;

create table pirn.journal(
  run bigint not null,
  step bigint not null,
  at bigint not null,
  effect text,
  body text not null,
  primary key(run, step)
);
create table pirn.contents(hash bytea primary key, body text not null);
create table pirn.snapshots(run bigint primary key, step bigint not null, body text not null);
create table pirn.timers(due bigint not null, run bigint not null, effect text collate "C" not null, primary key(due, run, effect));
create index on pirn.timers(run);
create table pirn.sessions(
  id text collate "C" primary key,
  version bigint not null,
  body text not null,
  contents bytea[] not null,
  run text not null,
  updated_at bigint not null
);
-- The run that has the turn in a session. The primary key makes it unique across processes.
create table pirn.turns(session text primary key, run bigint not null);
create index on pirn.turns(run);
create table pirn.meta(name text primary key, value text not null);
-- Requests to runs of other processes, and their answers.
create table pirn.requests(
  id bigint generated always as identity primary key,
  run bigint not null,
  body text not null,
  answer text
);
create index on pirn.requests(run) where answer is null;

-- Refuses a call by an error, which rolls back the block of the caller.
create function pirn.refuse(code text, name text default null, expected bigint default 0, actual bigint default 0)
  returns void language plpgsql as $$
begin
  raise exception using errcode = 'PN001', message = code, detail = coalesce(name, ''),
    hint = expected || ' ' || actual;
end $$;

-- Returns true if a claim is valid, and locks the attempt's row until the transaction ends.
create function pirn.holds(claim uuid, worker text) returns boolean language sql as $$
  select exists (select from absurd.r_pirn where run_id = claim and state = 'running' and claimed_by = worker for no key update)
$$;

-- Returns the owner of a task, if its claim has not expired.
create function pirn.claimant(of_task uuid) returns text language sql as $$
  select r.claimed_by from absurd.r_pirn r
    where r.task_id = of_task and r.state = 'running' and r.claim_expires_at > absurd.current_time()
    limit 1 for no key update
$$;

create function pirn.new_task(run text) returns uuid language sql as $$
  select task_id from absurd.spawn_task('pirn', 'run', jsonb_build_object('runId', run))
$$;

-- Claims the newest attempt of a task. absurd.claim_task cannot claim a certain task.
create function pirn.claim_attempt(of_task uuid, worker text, seconds integer) returns uuid language plpgsql as $$
declare
  attempt uuid;
begin
  update absurd.r_pirn r
     set state = 'running', claimed_by = worker, started_at = absurd.current_time(), available_at = absurd.current_time(),
         claim_expires_at = absurd.current_time() + make_interval(secs => seconds)
   where r.task_id = of_task and r.state in ('pending', 'sleeping')
  returning r.run_id into attempt;
  if attempt is not null then
    update absurd.t_pirn t
       set state = 'running', last_attempt_run = attempt, first_started_at = coalesce(t.first_started_at, absurd.current_time())
     where t.task_id = of_task;
  end if;
  return attempt;
end $$;

-- Claims a run. Returns the claim, or a code: NO_SUCH_RUN, HELD with the owner's name, ENDED.
create function pirn.claim(of_run text, worker text, seconds integer, out claim text, out code text, out name text)
  language plpgsql as $$
declare
  r pirn.runs;
  expired uuid;
begin
  select * into r from pirn.runs where id = of_run and not is_hidden for update;
  if not found then
    code := 'NO_SUCH_RUN'; return;
  end if;
  if r.status >= 4 then
    code := 'ENDED'; return;
  end if;
  name := pirn.claimant(r.task);
  if name is not null then
    code := 'HELD'; return;
  end if;
  select run_id into expired from absurd.r_pirn where task_id = r.task and state = 'running' for update;
  if found then
    perform absurd.fail_run('pirn', expired, jsonb_build_object('name', '$ClaimTimeout'), null);
  end if;
  claim := pirn.claim_attempt(r.task, worker, seconds)::text;
  if claim is null then
    -- The task was ended with absurd's tools, but the run has not ended: it gets a new task.
    r.task := pirn.new_task(r.id);
    update pirn.runs set task = r.task where key = r.key;
    claim := pirn.claim_attempt(r.task, worker, seconds)::text;
  end if;
end $$;

-- Claims up to `most` runs without an owner. Tasks without a run are completed.
create function pirn.claim_next(worker text, seconds integer, most integer)
  returns table(claim text, run text) language plpgsql as $$
declare
  c record;
  r pirn.runs;
begin
  for c in select * from absurd.claim_task('pirn', worker, seconds, most) loop
    select * into r from pirn.runs where task = c.task_id and not is_hidden;
    if not found or r.status >= 4 then
      perform absurd.complete_run('pirn', c.run_id, null);
    else
      claim := c.run_id::text; run := r.id;
      return next;
    end if;
  end loop;
end $$;

-- Extends claims. Returns the lost ones, and those with a locked row, which are not extended.
create function pirn.extend(claims uuid[], worker text, seconds integer) returns table(claim text, is_lost boolean) language plpgsql as $$
declare
  c uuid;
  s text;
begin
  foreach c in array claims loop
    select state into s from absurd.r_pirn where run_id = c and claimed_by = worker for update skip locked;
    if found and s = 'running' then
      update absurd.r_pirn set claim_expires_at = absurd.current_time() + make_interval(secs => seconds) where run_id = c;
    else
      select state into s from absurd.r_pirn where run_id = c and claimed_by = worker;
      claim := c::text; is_lost := s is distinct from 'running';
      return next;
    end if;
  end loop;
end $$;

-- Releases a claim: the run is offered to other processes after a delay.
create function pirn.release(claim uuid, worker text, seconds double precision) returns void language plpgsql as $$
begin
  if pirn.holds(claim, worker) then
    perform absurd.schedule_run('pirn', claim, absurd.current_time() + make_interval(secs => seconds));
    perform pg_notify('pirn', 'run');
  end if;
end $$;

-- Gives a run the turn in its session. Returns false while another run has it, or an earlier run waits for it.
create function pirn.take_turn(of_session text, of_run text) returns boolean language plpgsql as $$
declare
  r pirn.runs;
  holder bigint;
begin
  -- Locked, so that the run cannot end before this commits: the turn of an ended run would never be released.
  select * into r from pirn.runs where id = of_run for share;
  if not found or r.status >= 4 or r.has_left then
    return true;
  end if;
  select t.run into holder from pirn.turns t where t.session = of_session;
  if found then
    return holder = r.key;
  end if;
  if exists (select from pirn.runs o where o.session = of_session and o.key < r.key
             and o.status < 4 and not o.has_left and not o.is_hidden) then
    return false;
  end if;
  insert into pirn.turns(session, run) values (of_session, r.key) on conflict do nothing;
  return found;
end $$;

-- Executes a commit. `p` contains the small parts; missing parts are null.
create function pirn.commit(writer_id uuid, number bigint, claim uuid, worker text, seconds integer, p jsonb,
    ats bigint[], effects text[], bodies text[], hashes bytea[], texts text[], names bytea[],
    session_body text, session_contents bytea[], snapshot_body text)
  returns table(code text, name text, expected bigint, found_at bigint, steps bigint, new_claim text) language plpgsql as $$
declare
  r pirn.runs;
  base pirn.runs;
  start jsonb := p->'start';
  missing bytea;
  new_task uuid;
  start_contents bytea[];
  version bigint;
  held boolean;
  by_whom text;
  ancestors integer;
  why text; why_name text; why_numbers text;
  first_step bigint;
  change jsonb;
begin
  begin
    -- Shared lock against removals, which could delete contents that this commit names.
    perform pg_advisory_xact_lock_shared(7049, 1);
    if start is not null then
      select array_agg(decode(value, 'hex') order by ordinality) into start_contents
        from jsonb_array_elements_text(start->'contents') with ordinality;
      start_contents := coalesce(start_contents, '{}');
      insert into pirn.runs(id, workflow, definition, contents, semantics, session, base_run, base_step, status, started_at,
          updated_at, steps, writer, commit_number)
        values (p->>'run', start->>'workflow', decode(start->>'definition', 'hex'), start_contents,
          (start->>'semantics')::bigint, start->>'session', start->>'baseRun', coalesce((start->>'baseStep')::bigint, 0), 0,
          (start->>'startedAt')::bigint, (start->>'startedAt')::bigint, coalesce((start->>'baseStep')::bigint, 0),
          writer_id, number)
        on conflict (id) do nothing
        returning * into r;
      if not found then
        select * into r from pirn.runs where id = p->>'run' and writer = writer_id and commit_number >= number;
        if found then
          steps := r.base_step + cardinality(bodies);
          select run_id::text into new_claim from absurd.r_pirn
            where task_id = r.task and state = 'running' and claimed_by = worker;
          return next; return;
        end if;
        perform pirn.refuse('RUN_EXISTS', p->>'run');
      end if;
      if r.base_run is not null then
        select * into base from pirn.runs where id = r.base_run and not is_hidden for share;
        if not found then
          perform pirn.refuse('NO_SUCH_RUN', r.base_run);
        end if;
        if r.base_step > base.steps then
          perform pirn.refuse('MOVED', r.base_run, r.base_step, base.steps);
        end if;
        with recursive line(id, base_run) as (
          select b.id, b.base_run from pirn.runs b where b.id = r.base_run
          union all
          select b.id, b.base_run from pirn.runs b join line on b.id = line.base_run
        ) select count(*) into ancestors from line;
        if ancestors >= (start->>'maxForks')::integer then
          perform pirn.refuse('TOO_MANY_FORKS');
        end if;
      end if;
    else
      select * into r from pirn.runs where id = p->>'run' and not is_hidden for update;
      if not found then
        perform pirn.refuse('NO_SUCH_RUN', p->>'run');
      end if;
      if r.writer = writer_id and r.commit_number >= number then
        steps := (p->>'follows')::bigint + cardinality(bodies);
        return next; return;
      end if;
      if claim is not null then
        if not pirn.holds(claim, worker) then
          perform pirn.refuse('LOST', p->>'run');
        end if;
      else
        by_whom := pirn.claimant(r.task);
        if by_whom is not null then
          perform pirn.refuse('HELD', by_whom);
        end if;
      end if;
      if r.steps <> (p->>'follows')::bigint then
        perform pirn.refuse('MOVED', p->>'run', (p->>'follows')::bigint, r.steps);
      end if;
    end if;

    -- In the order of hashes, so that concurrent commits with common contents lock them in one order and do not deadlock.
    insert into pirn.contents(hash, body)
      select h, t from unnest(hashes, texts) as given(h, t) order by h on conflict do nothing;
    select n into missing
      from unnest(case when start is null then names else array[r.definition] || r.contents || names end) with ordinality as w(n, at)
      where not exists (select from pirn.contents c where c.hash = w.n) order by at limit 1;
    if found then
      perform pirn.refuse('NO_SUCH_CONTENT', encode(missing, 'hex'));
    end if;

    if p ? 'session' then
      insert into pirn.sessions(id, version, body, contents, run, updated_at)
        values (p->'session'->>'id', 0, '', '{}', '', 0) on conflict do nothing;
      select s.version into version from pirn.sessions s where s.id = p->'session'->>'id' for update;
      if version <> (p->'session'->>'follows')::bigint then
        perform pirn.refuse('SESSION_MOVED', p->'session'->>'id', (p->'session'->>'follows')::bigint, version);
      end if;
      select n into missing from unnest(session_contents) with ordinality as w(n, at)
        where not exists (select from pirn.contents c where c.hash = w.n) order by at limit 1;
      if found then
        perform pirn.refuse('NO_SUCH_CONTENT', encode(missing, 'hex'));
      end if;
      update pirn.sessions s set version = s.version + 1, body = session_body, contents = session_contents, run = p->>'run',
          updated_at = (p->'session'->>'at')::bigint
        where s.id = p->'session'->>'id';
      delete from pirn.turns t where t.run = r.key;
    end if;

    first_step := r.steps;
    steps := r.steps + cardinality(bodies);
    if p ? 'snapshot' then
      if (p->>'snapshot')::bigint > steps then
        perform pirn.refuse('MOVED', p->>'run', (p->>'snapshot')::bigint, steps);
      end if;
      insert into pirn.snapshots(run, step, body) values (r.key, (p->>'snapshot')::bigint, snapshot_body)
        on conflict (run) do update set step = excluded.step, body = excluded.body;
    end if;

    insert into pirn.journal(run, step, at, effect, body)
      select r.key, first_step + n, a, e, b from unnest(ats, effects, bodies) with ordinality as given(a, e, b, n);
    for change in select value from jsonb_array_elements(p->'timers') loop
      if (change->>'set')::boolean then
        insert into pirn.timers(due, run, effect) values ((change->>'due')::bigint, r.key, change->>'effect')
          on conflict do nothing;
      else
        delete from pirn.timers t where t.due = (change->>'due')::bigint and t.run = r.key and t.effect = change->>'effect';
      end if;
    end loop;

    new_task := r.task;
    if start is not null then
      new_task := pirn.new_task(r.id);
      if (start->>'isCarried')::boolean then
        new_claim := pirn.claim_attempt(new_task, worker, seconds)::text;
        claim := new_claim::uuid;
      else
        perform pg_notify('pirn', 'run');
      end if;
    end if;
    if (p->>'status')::smallint >= 4 and r.status < 4 then
      if claim is not null then
        perform absurd.complete_run('pirn', claim, jsonb_build_object('status', p->>'status'));
      else
        perform absurd.cancel_task('pirn', new_task);
      end if;
      if r.session is not null then
        delete from pirn.turns t where t.run = r.key;
      end if;
    end if;
    update pirn.runs u set
        contents = case when cardinality(names) > 0 then u.contents || names else u.contents end,
        status = coalesce((p->>'status')::smallint, u.status),
        updated_at = coalesce(ats[cardinality(ats)], u.updated_at),
        steps = commit.steps, has_left = u.has_left or p ? 'session', task = new_task,
        writer = writer_id, commit_number = number
      where u.key = r.key;
    return next;
  exception when sqlstate 'PN001' then
    get stacked diagnostics why = message_text, why_name = pg_exception_detail, why_numbers = pg_exception_hint;
    code := why; name := why_name;
    expected := split_part(why_numbers, ' ', 1)::bigint; found_at := split_part(why_numbers, ' ', 2)::bigint;
    steps := null; new_claim := null;
    return next;
  end;
end $$;

-- Returns the records of a run after a step, including those shared with its base runs.
create function pirn.read_journal(of_run text, after bigint, most bigint)
  returns table(at bigint, effect text, body text) language plpgsql as $$
begin
  if not exists (select from pirn.runs where id = of_run and not is_hidden) then
    raise exception using errcode = 'PN001', message = 'NO_SUCH_RUN', detail = of_run;
  end if;
  return query
    with recursive line(key, base_run, first_step, last_step) as (
      select r.key, r.base_run, r.base_step, r.steps from pirn.runs r where r.id = of_run
      union all
      select b.key, b.base_run, b.base_step, least(b.steps, line.first_step, line.last_step)
        from pirn.runs b join line on b.id = line.base_run
    )
    select j.at, j.effect, j.body from line join pirn.journal j on j.run = line.key
      where j.step > after and j.step <= line.last_step order by j.step limit most;
end $$;

-- Deletes those of these contents that no run or session names. Returns the number of bytes.
create function pirn.collect(candidates bytea[]) returns bigint language sql as $$
  with named as (
    select definition as hash from pirn.runs union select unnest(contents) from pirn.runs
    union select unnest(contents) from pirn.sessions
  ), removed as (
    delete from pirn.contents c where c.hash = any(candidates) and c.hash not in (select hash from named)
    returning octet_length(body) as bytes
  ) select coalesce(sum(bytes), 0)::bigint from removed
$$;

-- Removes runs. A run that is the base of others is hidden, and deleted together with the last of them.
create function pirn.remove(ids text[], out runs bigint, out bytes bigint) language plpgsql as $$
declare
  r pirn.runs;
  freed bigint;
  candidates bytea[] := '{}';
begin
  perform pg_advisory_xact_lock(7049, 1);
  runs := 0; bytes := 0;
  for r in update pirn.runs u set is_hidden = true where u.id = any(ids) and not u.is_hidden returning * loop
    runs := runs + 1;
    delete from pirn.timers t where t.run = r.key;
    delete from pirn.turns t where t.run = r.key;
    delete from pirn.requests q where q.run = r.key;
    delete from absurd.r_pirn a where a.task_id = r.task;
    delete from absurd.t_pirn a where a.task_id = r.task;
  end loop;
  loop
    select * into r from pirn.runs u where u.is_hidden and not exists (select from pirn.runs o where o.base_run = u.id) limit 1;
    exit when not found;
    with gone as (delete from pirn.journal j where j.run = r.key returning octet_length(j.body) as b)
      select coalesce(sum(b), 0) into freed from gone;
    bytes := bytes + freed;
    with gone as (delete from pirn.snapshots s where s.run = r.key returning octet_length(s.body) as b)
      select coalesce(sum(b), 0) into freed from gone;
    bytes := bytes + freed;
    delete from pirn.runs u where u.key = r.key;
    candidates := candidates || r.definition || r.contents;
  end loop;
  bytes := bytes + pirn.collect(candidates);
end $$;

create function pirn.remove_session(of_session text) returns boolean language plpgsql as $$
declare
  was bytea[];
begin
  perform pg_advisory_xact_lock(7049, 1);
  delete from pirn.sessions where id = of_session and version > 0 returning contents into was;
  if not found then
    return false;
  end if;
  perform pirn.collect(was);
  return true;
end $$;
