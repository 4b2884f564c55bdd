"""`plimsoll api`: runs the API server in the foreground; manages tokens, backup and restore."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plimsoll.cli import console
from plimsoll.cli.parameters import DurationParam, log_level, log_options, profile_option
from plimsoll.linux.files.state_dir import default_state

if TYPE_CHECKING:
    from plimsoll.api.auth.shared_keys import SharedKeys
    from plimsoll.cli.server.backup import EtcdStore
    from plimsoll.rules.admission.pod_security import PodSecurity

_STATE = console.option(
    "--state-dir",
    metavar="DIR",
    type=console.Path(file_okay=False),
    help="Directory for keys and objects.  [default: $PLIMSOLL_HOME, /var/lib/plimsoll, ~/.local/state/plimsoll]",
)


_STORE_KEY = console.option(
    "--store-key-file",
    metavar="FILE",
    type=console.Path(dir_okay=False, exists=True),
    help="A secret of at least 12 bytes that encrypts the CA and the keys that all servers on one etcd share.",
)


@console.group(invoke_without_command=True)
@_STATE
@console.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:6443",
    show_default=True,
    help="Address to listen on; port 0: any free port.",
)
@console.option(
    "--advertise-address",
    metavar="HOST",
    default="",
    help="Address at which nodes and pods reach the server.  [default: that of --listen, or of the default route]",
)
@profile_option("profile_name")
@console.option("--feature-gates", metavar="LIST", default="", help="Name=true,Name=false,… as for kube-apiserver.")
@console.option(
    "--audit-log-path",
    "--audit-log",
    "audit_log",
    metavar="FILE",
    type=console.Path(dir_okay=False),
    help="Write an audit.k8s.io/v1 event for each change, exec and error; at most 11 files of 100 MiB.",
)
@console.option(
    "--service-cluster-ip-range",
    metavar="CIDR",
    default="10.96.0.0/12",
    show_default=True,
    help="Addresses for Services.",
)
@console.option(
    "--service-node-port-range",
    metavar="FIRST-LAST",
    default="30000-32767",
    show_default=True,
    help="Node ports for Services.",
)
@console.option(
    "--admission-control-config-file",
    "admission_config",
    metavar="FILE",
    type=console.Path(dir_okay=False, exists=True),
    help="An AdmissionConfiguration: defaults and exemptions of PodSecurity.",
)
@console.option(
    "--approve-serving-certificates",
    "approves_serving",
    is_flag=True,
    help="Approve the serving certificates that nodes request for their own names and addresses.",
)
@console.option(
    "--event-ttl",
    "event_ttl_s",
    metavar="DURATION",
    type=DurationParam(),
    default="1h",
    show_default=True,
    help="How long an event is kept after it was last observed.",
)
@console.option(
    "--store",
    metavar="URL",
    default="",
    help="Keep the objects in etcd: etcd://HOST:PORT,HOST:PORT?prefix=/plimsoll, with ca, cert, key, user and "
    "password-file as further options of the URL.  [default: SQLite in the state directory]",
)
@_STORE_KEY
@console.option("--scheduler/--no-scheduler", default=True, help="Whether to run the scheduler in this process.")
@console.option("--while-stdin", is_flag=True, hidden=True, help="End when standard input is closed.")
@log_options
@console.pass_context
def api(context: console.Context, /, state_dir: Path | None, **options: Any) -> None:
    """Run the API server. The first start creates a CA and an admin kubeconfig, and prints its path.

    \b
    plimsoll api &
    kubectl --kubeconfig ~/.local/state/plimsoll/admin.kubeconfig get nodes
    """
    context.obj = state_dir
    if context.invoked_subcommand is None:
        from plimsoll.net import lanes

        level = log_level(options)
        lanes.run(run(default_state(state_dir), level=level, **options))


@api.command()
@console.argument("store", metavar="URL")
@_STORE_KEY
@console.option("--listen", metavar="HOST:PORT", help="Address to listen on, as for `plimsoll api`.")
@console.pass_context
def join(context: console.Context, store: str, store_key_file: Path | None, listen: str | None) -> None:
    """Run one more API server on the objects in etcd, with the CA and the keys of the servers that are there.

    \b
    plimsoll api join 'etcd://10.0.0.1:2379,10.0.0.2:2379' --store-key-file store.key --listen 10.0.0.5:6443

    Put other options before `join`: plimsoll api --profile 1.36 join …
    """
    from plimsoll.net import lanes

    assert context.parent is not None
    options = dict(context.parent.params)
    state_dir = options.pop("state_dir")
    options |= {"store": store, "store_key_file": store_key_file or options["store_key_file"]}
    options["listen"] = listen or options["listen"]
    level = log_level(options)
    lanes.run(run(default_state(state_dir), level=level, joins=True, **options))


def _announced(url: str, kubeconfig: Path) -> None:
    console.echo(f"{url}\nKUBECONFIG={kubeconfig}")


async def run(
    state: Path,
    listen: str,
    profile_name: str,
    feature_gates: str,
    audit_log: Path | None,
    scheduler: bool,
    level: int,
    service_cluster_ip_range: str = "10.96.0.0/12",
    service_node_port_range: str = "30000-32767",
    admission_config: Path | None = None,
    approves_serving: bool = False,
    event_ttl_s: float = 3600.0,
    while_stdin: bool = False,
    advertise_address: str = "",
    store: str = "",
    store_key_file: Path | None = None,
    joins: bool = False,
    announced: Callable[[str, Path], None] = _announced,
) -> None:
    """Serve until a signal arrives; `announced` is called with the address and the kubeconfig."""
    import contextlib
    import errno

    from plimsoll.api.auth.authenticator import ADMIN_FILE, server_names, write_admin_kubeconfig
    from plimsoll.api.auth.ca import Authority
    from plimsoll.api.machinery.audit import Audit, AuditFile
    from plimsoll.api.server.server import Listener, serve
    from plimsoll.cli.daemon import allow_many_files, freeze_garbage, host_and_port, stop_event
    from plimsoll.cli.server.assembly import control_plane
    from plimsoll.linux.files.state_dir import write_private
    from plimsoll.linux.identity import internal_ip
    from plimsoll.logs import log_to_stderr
    from plimsoll.rules.admission.pod_security import PodSecurity
    from plimsoll.rules.admission.service_addresses import service_ranges
    from plimsoll.rules.config.parse import reading
    from plimsoll.rules.profile import profile_named

    host, port = host_and_port(listen)
    if event_ttl_s <= 0:
        raise console.UsageError("--event-ttl must be positive")
    ranges = service_ranges(service_cluster_ip_range, service_node_port_range)
    profile = profile_named(profile_name)
    read = reading(None, profile, {"featureGates": feature_gates} if feature_gates else {})
    for note in read.notes:
        console.echo(f"plimsoll: {note}", err=True)
    authority = Authority(state)
    advertised = advertise_address.strip("[]") or internal_ip(host)
    log_to_stderr(level)
    names = server_names(host, advertised)
    shared = await _shared_keys(state, store, store_key_file, lambda: authority.prepare(names), joins=joins)
    authority.prepare(names)
    stop = stop_event(while_stdin=while_stdin)
    with contextlib.ExitStack() as stack:
        audit = None
        if audit_log is not None:
            audit = Audit(stack.enter_context(contextlib.closing(AuditFile(audit_log))))
        app = control_plane(
            state,
            authority,
            profile,
            read.config.feature_gates,
            scheduler=scheduler,
            audit=audit,
            services=ranges,
            approves_serving=approves_serving,
            event_ttl_s=event_ttl_s,
            pod_security=PodSecurity() if admission_config is None else _pod_security(admission_config),
            etcd=None if shared is None else shared.location,
            added=() if shared is None else (shared.service,),
        )

        def announce(url: str) -> None:
            try:
                write_admin_kubeconfig(state, authority, url)
                write_private(state / "address", f"https://{app.pages.address}".encode())  # for nodes
            except OSError as error:  # with a full disk reads are still served; the old file has the last address
                if error.errno != errno.ENOSPC or not (state / ADMIN_FILE).exists():
                    raise
                console.echo(f"plimsoll: {state / ADMIN_FILE} is not updated: {error.strerror}", err=True)
            announced(url, state / ADMIN_FILE)
            freeze_garbage()

        allow_many_files()
        await serve(app, Listener(host, port, authority.server_context(), advertised), announce, stop)


async def _shared_keys(
    state: Path, store: str, key_file: Path | None, create: Callable[[], None], *, joins: bool
) -> SharedKeys | None:
    """The keys of a cluster with several servers; None for one whose objects are in SQLite."""
    if not store:
        if key_file is not None:
            raise console.UsageError("--store-key-file is for servers that share etcd: give --store etcd://…, too")
        return None
    from plimsoll.api.auth.shared_keys import SharedKeys
    from plimsoll.store.etcd.location import location

    where = location(store)
    if key_file is None:
        raise console.UsageError(
            "--store needs --store-key-file FILE: it encrypts the CA and the keys that the servers share in etcd. "
            "Create it once (head -c 32 /dev/urandom | base64 > store.key; chmod 600 store.key) and give it to every "
            "server"
        )
    shared = SharedKeys(state, where, key_file)
    await shared.prepare(create, joins=joins)
    return shared


def _pod_security(file: Path) -> PodSecurity:
    from plimsoll.codec.yaml.reader import YamlError, read
    from plimsoll.errors import InvalidConfigError
    from plimsoll.rules.admission.pod_security import pod_security_from

    def document(path: Path) -> Any:
        try:
            found = next(read(path.read_bytes()), None)
        except OSError as error:
            raise InvalidConfigError("", f"{path}: {error.strerror}") from None
        if found is None or isinstance(found, YamlError):
            raise InvalidConfigError("", f"{path}: {found or 'empty'}")
        return found.value

    try:
        return pod_security_from(document(file), lambda name: document(file.parent / name))
    except InvalidConfigError as error:
        raise console.CommandError(f"--admission-control-config-file {file}: {error}") from None


def _etcd_store(context: console.Context) -> EtcdStore | None:
    from plimsoll.cli.server.backup import EtcdStore
    from plimsoll.store.etcd.location import location

    assert context.parent is not None
    options = context.parent.params
    if not options["store"]:
        return None
    if options["store_key_file"] is None:
        raise console.UsageError("--store needs --store-key-file FILE, with the key that the servers have")
    return EtcdStore(location(options["store"]), options["store_key_file"])


_PASSPHRASE = console.option(
    "--passphrase-file",
    metavar="FILE",
    type=console.Path(dir_okay=False, exists=True),
    help="A file with the passphrase, or any secret of at least 12 bytes, that encrypts the backup.",
)


@api.command()
@console.argument("file", type=console.Path(dir_okay=False))
@_PASSPHRASE
@console.pass_context
def backup(context: console.Context, file: Path, passphrase_file: Path | None) -> None:
    """Copy the objects to FILE; the server may be running.

    With --passphrase-file, the backup also contains the CA, its keys and the tokens, and is encrypted. From etcd:
    plimsoll api --store URL --store-key-file KEY backup FILE. A backup of one store can be restored to the other.
    """
    from plimsoll.cli.server.backup import back_up

    back_up(default_state(context.obj), file, passphrase_file, _etcd_store(context))
    console.echo(f"{file}")
    if passphrase_file is None:
        console.echo("plimsoll: without keys and tokens; give --passphrase-file to include them", err=True)


@api.command()
@console.argument("file", type=console.Path(dir_okay=False, exists=True))
@_PASSPHRASE
@console.pass_context
def restore(context: console.Context, file: Path, passphrase_file: Path | None) -> None:
    """Restore FILE; the server must not be running. Existing data is moved aside.

    To etcd, below a prefix that is empty: plimsoll api --store URL --store-key-file KEY restore FILE.
    """
    import asyncio

    from plimsoll.api.auth.sealed_archive import is_sealed
    from plimsoll.cli.server.backup import put_back, restore_to_etcd
    from plimsoll.store.sqlite.backup import restore as restore_store

    state, etcd, aside = default_state(context.obj), _etcd_store(context), None
    if is_sealed(file):
        if passphrase_file is None:
            raise console.UsageError(f"{file} is encrypted: give --passphrase-file FILE")
        aside = put_back(state, file, passphrase_file, etcd)
    else:
        if passphrase_file is not None:
            raise console.UsageError(f"{file} is not encrypted: omit --passphrase-file")
        if etcd is None:
            aside = restore_store(file, state / "store")
        else:
            asyncio.run(restore_to_etcd(state, file, etcd))
    console.echo("restored" if aside is None else f"restored; the old store is in {aside}")


@api.group()
def token() -> None:
    """Manage credentials: kubeconfigs for nodes, bearer tokens for users."""


@token.command("create")
@console.option("--node", metavar="NAME", help="Print a kubeconfig with a node's certificate.")
@console.option("--user", metavar="NAME", help="Print a kubeconfig with a bearer token.")
@console.option(
    "--role",
    type=console.Choice(["admin", "viewer", "none"]),
    default="viewer",
    show_default=True,
    help="What the user may do; with none, what RBAC bindings grant.",
)
@console.option(
    "--group", "groups", metavar="NAME", multiple=True, help="A further group of the user, for RBAC bindings."
)
@console.option("--server", metavar="URL", help="Address of the API server.  [default: its last address]")
@console.pass_obj
def create_token(
    state_dir: Path | None,
    node: str | None,
    user: str | None,
    role: str,
    groups: tuple[str, ...],
    server: str | None,
) -> None:
    """Create an identity and print its kubeconfig, which is secret."""
    from plimsoll.api.auth.ca import Authority, kubeconfig, node_kubeconfig
    from plimsoll.api.machinery.users import MASTERS, VIEWERS, Tokens
    from plimsoll.rules.model.names import dns_subdomain_problems

    if (node is None) == (user is None):
        raise console.UsageError("specify --node NAME or --user NAME")
    state = default_state(state_dir)
    authority = Authority(state)
    if not authority.ca_file.exists():
        raise console.CommandError(f"{state} has no CA: start `plimsoll api` once")
    address = state / "address"
    url = server or (address.read_text() if address.exists() else "https://127.0.0.1:6443")
    if node is not None:
        for complaint in dns_subdomain_problems(node):
            raise console.UsageError(f"--node {node!r}: {complaint}")
        console.echo(node_kubeconfig(authority, url, node).decode(), nl=False)
        return
    assert user is not None
    own = {"admin": (MASTERS,), "viewer": (VIEWERS,), "none": ()}[role]
    made = Tokens(state).create(user, (*own, *groups))
    console.echo(kubeconfig(url, authority.ca_file.read_bytes(), user, made).decode(), nl=False)


@token.command("list")
@console.pass_obj
def list_tokens(state_dir: Path | None) -> None:
    """List the users that have bearer tokens."""
    from plimsoll.api.machinery.users import Tokens
    from plimsoll.cli.terminal import inert, table

    state = default_state(state_dir)
    rows = [(inert(name),) for name in Tokens(state).names()]
    if not rows:
        console.echo(f"no tokens in {state}; create one with: plimsoll api token create --user NAME", err=True)
    for line in table(rows, ("USER",)) if rows else ():
        console.echo(line)


@token.command("revoke")
@console.argument("user")
@console.pass_obj
def revoke_token(state_dir: Path | None, user: str) -> None:
    """Revoke all bearer tokens of a user at once."""
    from plimsoll.api.machinery.users import Tokens

    gone = Tokens(default_state(state_dir)).revoke(user)
    if not gone:
        raise console.CommandError(f"{user!r} has no token")
    console.echo(f"{user}: {gone} revoked")
