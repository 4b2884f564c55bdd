"""The roles and bindings that every cluster has: Kubernetes' own, and `plimsoll:viewer`.

One line opens a role: its name and `← label` where another role selects it, `⇐ label` where it selects others by that
label. An indented line is a rule: verbs, API group, resources (and `= name`), or verbs and paths. `core` is the group
without a name; `read`, `write` and `all` are verbs of everything that is stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from plimsoll.rules.access.rbac import PolicyRule, Subject

_READ = ("get", "list", "watch")
_WRITE = ("create", "delete", "deletecollection", "patch", "update")
_VERBS = {"read": _READ, "write": _WRITE, "all": tuple(sorted((*_READ, *_WRITE)))}
_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"
VIEWER = "plimsoll:viewer"

_TABLE = """
cluster-admin
  * * *
  * *
admin ⇐ admin
edit ← admin ⇐ edit
view ← edit ⇐ view
system:aggregate-to-admin ← admin
  create authorization.k8s.io localsubjectaccessreviews
  all rbac.authorization.k8s.io rolebindings,roles
system:aggregate-to-edit ← edit
  read core pods/attach,pods/exec,pods/portforward,pods/proxy,secrets,services/proxy
  impersonate core serviceaccounts
  write core pods,pods/attach,pods/exec,pods/portforward,pods/proxy
  create core pods/eviction
  write core configmaps,persistentvolumeclaims,replicationcontrollers,replicationcontrollers/scale,secrets,serviceaccounts,services,services/proxy
  create core serviceaccounts/token
  write core,events.k8s.io events
  write apps daemonsets,deployments,deployments/rollback,deployments/scale,replicasets,replicasets/scale,statefulsets,statefulsets/scale
  write autoscaling horizontalpodautoscalers
  write batch cronjobs,jobs
  write policy poddisruptionbudgets
  write networking.k8s.io ingresses,networkpolicies
  all coordination.k8s.io leases
  write resource.k8s.io resourceclaims,resourceclaimtemplates
system:aggregate-to-view ← view
  read core configmaps,endpoints,persistentvolumeclaims,persistentvolumeclaims/status,pods,replicationcontrollers,replicationcontrollers/scale,serviceaccounts,services,services/status
  read core bindings,limitranges,namespaces/status,pods/log,pods/status,replicationcontrollers/status,resourcequotas,resourcequotas/status
  read core namespaces
  read core,events.k8s.io events
  read discovery.k8s.io endpointslices
  read apps controllerrevisions,daemonsets,daemonsets/status,deployments,deployments/scale,deployments/status,replicasets,replicasets/scale,replicasets/status,statefulsets,statefulsets/scale,statefulsets/status
  read autoscaling horizontalpodautoscalers,horizontalpodautoscalers/status
  read batch cronjobs,cronjobs/status,jobs,jobs/status
  read policy poddisruptionbudgets,poddisruptionbudgets/status
  read networking.k8s.io ingresses,ingresses/status,networkpolicies
  read resource.k8s.io resourceclaims,resourceclaims/status,resourceclaimtemplates
  read metrics.k8s.io nodes,pods
system:auth-delegator
  create authentication.k8s.io tokenreviews
  create authorization.k8s.io subjectaccessreviews
system:basic-user
  create authorization.k8s.io selfsubjectaccessreviews,selfsubjectrulesreviews
  create authentication.k8s.io selfsubjectreviews
system:certificates.k8s.io:certificatesigningrequests:nodeclient
  create certificates.k8s.io certificatesigningrequests/nodeclient
system:certificates.k8s.io:certificatesigningrequests:selfnodeclient
  create certificates.k8s.io certificatesigningrequests/selfnodeclient
system:certificates.k8s.io:kube-apiserver-client-approver
  approve certificates.k8s.io signers = kubernetes.io/kube-apiserver-client
system:certificates.k8s.io:kube-apiserver-client-kubelet-approver
  approve certificates.k8s.io signers = kubernetes.io/kube-apiserver-client-kubelet
system:certificates.k8s.io:kubelet-serving-approver
  approve certificates.k8s.io signers = kubernetes.io/kubelet-serving
system:certificates.k8s.io:legacy-unknown-approver
  approve certificates.k8s.io signers = kubernetes.io/legacy-unknown
system:discovery
  get /api,/api/*,/apis,/apis/*,/healthz,/livez,/openapi,/openapi/*,/readyz,/version,/version/
system:kube-aggregator
  read core endpoints,services
system:kube-dns
  list,watch core endpoints,services
  list,watch discovery.k8s.io endpointslices
system:kubelet-api-admin
  read core nodes
  proxy core nodes
  * core nodes/log,nodes/metrics,nodes/proxy,nodes/stats
  * core nodes/configz,nodes/healthz,nodes/pods
system:monitoring
  get /flagz,/healthz,/healthz/*,/livez,/livez/*,/metrics,/metrics/slis,/readyz,/readyz/*,/statusz
  get core nodes/metrics
system:node
  create authentication.k8s.io tokenreviews
  create authorization.k8s.io localsubjectaccessreviews,subjectaccessreviews
  read core services
  create,get,list,watch core nodes
  patch,update core nodes,nodes/status
  create,patch,update core,events.k8s.io events
  create,delete,get,list,watch core pods
  patch,update core pods/status
  create core pods/eviction,serviceaccounts/token
  read core configmaps,secrets
  get core endpoints,persistentvolumeclaims,persistentvolumes,serviceaccounts
  create,get,list,watch certificates.k8s.io certificatesigningrequests
  read certificates.k8s.io clustertrustbundles
  create,delete,get,patch,update coordination.k8s.io leases
  read node.k8s.io runtimeclasses
system:node-bootstrapper
  create,get,list,watch certificates.k8s.io certificatesigningrequests
system:node-problem-detector
  get core nodes
  patch core nodes/status
  create,patch,update core,events.k8s.io events
system:node-proxier
  list,watch core endpoints,services
  read core nodes
  create,patch,update core,events.k8s.io events
  list,watch networking.k8s.io servicecidrs
  list,watch discovery.k8s.io endpointslices
system:public-info-viewer
  get /healthz,/livez,/readyz,/version,/version/
system:service-account-issuer-discovery
  get /.well-known/openid-configuration,/.well-known/openid-configuration/,/openid/v1/jwks,/openid/v1/jwks/
plimsoll:viewer
  read core bindings,componentstatuses,configmaps,endpoints,events,limitranges,namespaces,namespaces/status,nodes,nodes/status,persistentvolumeclaims,persistentvolumes,pods,pods/ephemeralcontainers,pods/log,pods/resize,pods/status,podtemplates,replicationcontrollers,replicationcontrollers/scale,resourcequotas,resourcequotas/status,serviceaccounts,services,services/status
  get core nodes/metrics,nodes/stats
  read admissionregistration.k8s.io,apiextensions.k8s.io,apps,autoscaling,batch,certificates.k8s.io,coordination.k8s.io,discovery.k8s.io,events.k8s.io,metrics.k8s.io,networking.k8s.io,node.k8s.io,policy,rbac.authorization.k8s.io,scheduling.k8s.io,storage.k8s.io *
  get *
"""  # noqa: E501 (one line per rule)

_BINDINGS: dict[str, tuple[Subject, ...]] = {
    "cluster-admin": (Subject("Group", "system:masters"),),
    "system:basic-user": (Subject("Group", "system:authenticated"),),
    "system:discovery": (Subject("Group", "system:authenticated"),),
    "system:kube-dns": (Subject("ServiceAccount", "kube-dns", "kube-system"),),
    "system:monitoring": (Subject("Group", "system:monitoring"),),
    "system:node": (),
    "system:node-proxier": (Subject("User", "system:kube-proxy"),),
    "system:public-info-viewer": (
        Subject("Group", "system:authenticated"),
        Subject("Group", "system:unauthenticated"),
    ),
    "system:service-account-issuer-discovery": (Subject("Group", "system:serviceaccounts"),),
    # What kubeadm adds, so that a node can join with a bootstrap token and renew its certificate.
    "system:node-bootstrapper": (Subject("Group", "system:bootstrappers"),),
    "system:certificates.k8s.io:certificatesigningrequests:nodeclient": (Subject("Group", "system:bootstrappers"),),
    "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient": (Subject("Group", "system:nodes"),),
    "system:kubelet-api-admin": (Subject("Group", "plimsoll:api"),),  # this API server, when it calls a node
    VIEWER: (Subject("Group", "plimsoll:viewers"),),
}


class DefaultRole(msgspec.Struct, frozen=True):
    name: str
    rules: tuple[PolicyRule, ...]
    labels: dict[str, str]
    selects: str = ""  # the label of the roles that are joined in this one


def default_roles() -> Iterator[DefaultRole]:
    for block in re.split(r"\n(?! )", _TABLE.strip()):
        head, *lines = block.split("\n")
        name, *marks = head.split()
        joins = dict(zip(marks[::2], marks[1::2], strict=True))
        labels = {f"{_AGGREGATE}{joins['←']}": "true"} if "←" in joins else {}
        selects = f"{_AGGREGATE}{joins['⇐']}" if "⇐" in joins else ""
        yield DefaultRole(name, tuple(map(_rule, lines)), labels, selects)


def _rule(line: str) -> PolicyRule:
    text, _, name = line.partition(" = ")
    verbs, *rest = text.split()
    words = _VERBS.get(verbs) or tuple(verbs.split(","))
    if len(rest) == 1:
        return PolicyRule(words, non_resource_urls=tuple(rest[0].split(",")))
    groups = tuple("" if group == "core" else group for group in rest[0].split(","))
    return PolicyRule(words, groups, tuple(rest[1].split(",")), (name,) if name else ())


def default_bindings() -> Iterator[tuple[str, tuple[Subject, ...]]]:
    """(name of the ClusterRole and of its binding, subjects)."""
    yield from _BINDINGS.items()
