"""Manifests of the shapes that clusters run, and stand-ins for their images: busybox under the published names."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from plimsoll.runtime.cri.private_containerd.images import LocalImage

# What a client library does with in-cluster credentials, in a shell's words: METHOD PATH [BODY].
_CALL = (
    "A=/var/run/secrets/kubernetes.io/serviceaccount; "
    'call() { printf "%s %s HTTP/1.1\\r\\nHost: kubernetes\\r\\nAuthorization: Bearer %s\\r\\nConnection: close\\r\\n'
    'Content-Type: application/json\\r\\nContent-Length: %s\\r\\n\\r\\n%s" "$1" "$2" "$(cat $A/token)" "${#3}" "$3" | '
    "openssl s_client -quiet -verify_return_error -CAfile $A/ca.crt "
    '-connect "$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT" 2>/dev/null; }; '
)
# Answers PING as redis does; a client closes the connection.
_REDIS = "echo ready to accept connections; exec nc -ll -p 6379 -e sh -c 'read line; printf \"+PONG\\r\\n\"'"
_EXPORTER = (
    "test -r /host/etc/os-release || exit 1; mkdir /tmp/w; "
    "sed -n 's/^MemTotal: *\\([0-9]*\\).*/node_memory_MemTotal_kB \\1/p' /host/proc/meminfo > /tmp/w/metrics; "
    "exec httpd -f -p 9100 -h /tmp/w"
)
_CONTROLLER = _CALL + (
    'until call GET /apis/cert-manager.io/v1/certificates | grep \'"kind":"CertificateList"\' > /tmp/certificates; '
    "do sleep 1; done; "
    "echo started controller; exec sleep 100000"
)
# For each Greeting without a ConfigMap of its name it creates one.
_OPERATOR = _CALL + (
    "G=/apis/example.com/v1/namespaces/$NAMESPACE/greetings; M=/api/v1/namespaces/$NAMESPACE/configmaps; "
    "echo watching; while sleep 1; do for name in $(call GET $G | tr '{,' '\\n\\n' | "
    'sed -n \'s/.*"name":"\\(hello-[a-z]*\\)".*/\\1/p\' | sort -u); do '
    "call POST $M "
    '"{\\"metadata\\":{\\"name\\":\\"$name\\"},\\"data\\":{\\"greeting\\":\\"made by $(hostname)\\"}}" | head -1; '
    "done; done"
)


def programs() -> dict[str, bytes]:
    """openssl with the libraries that it needs, as on this machine; FileNotFoundError where there is none."""
    path = shutil.which("openssl")
    if path is None:
        raise FileNotFoundError("openssl")
    listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    files = [path, *re.findall(r"(/\S+) \(0x", listed)]
    return {"/bin/openssl" if file == path else file: Path(file).read_bytes() for file in files}


def _runs(script: str, *names: str, user: str = "") -> LocalImage:
    return LocalImage(names, entrypoint=("/bin/sh", "-c", script), user=user)


IMAGES = (
    _runs(
        "echo start worker processes; mkdir -p /tmp/www; hostname > /tmp/www/index.html; exec httpd -f -p 8080 -h /tmp/www",
        "docker.io/nginxinc/nginx-unprivileged:1.27",
        "docker.io/nginxinc/nginx-unprivileged:1.28",
        user="101",
    ),
    _runs(_REDIS, "docker.io/library/redis:7.4-alpine", user="999"),
    _runs(_EXPORTER, "quay.io/prometheus/node-exporter:v1.9.1", user="65534"),
    _runs(_CONTROLLER, "quay.io/jetstack/cert-manager-controller:v1.18.2", user="1000"),
    _runs(_OPERATOR, "ghcr.io/example/greeting-operator:v0.3.0", user="65532"),
)

_RESTRICTED = """\
      securityContext: {runAsNonRoot: true, runAsUser: %(user)s, seccompProfile: {type: RuntimeDefault}}
"""
_CONTAINER = """\
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {drop: [ALL]}
"""

RESTRICTED = f"""\
apiVersion: v1
kind: Namespace
metadata:
  name: shop
  labels: {{pod-security.kubernetes.io/enforce: restricted, pod-security.kubernetes.io/enforce-version: latest}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: shop, labels: {{app.kubernetes.io/name: web}}}}
spec:
  replicas: 2
  revisionHistoryLimit: 3
  strategy: {{type: RollingUpdate, rollingUpdate: {{maxUnavailable: 0, maxSurge: 1}}}}
  selector: {{matchLabels: {{app.kubernetes.io/name: web}}}}
  template:
    metadata: {{labels: {{app.kubernetes.io/name: web}}}}
    spec:
      automountServiceAccountToken: false
{_RESTRICTED % {"user": 101}}\
      containers:
      - name: nginx
        image: nginxinc/nginx-unprivileged:1.27
        ports: [{{name: http, containerPort: 8080}}]
        securityContext:
{_CONTAINER}\
        readinessProbe: {{httpGet: {{path: /index.html, port: http}}, periodSeconds: 1}}
        livenessProbe: {{tcpSocket: {{port: http}}, periodSeconds: 5}}
        lifecycle: {{preStop: {{sleep: {{seconds: 1}}}}}}
        resources: {{requests: {{cpu: 10m, memory: 16Mi}}, limits: {{memory: 64Mi}}}}
        volumeMounts: [{{name: tmp, mountPath: /tmp}}]
      volumes: [{{name: tmp, emptyDir: {{medium: Memory, sizeLimit: 8Mi}}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: web, namespace: shop}}
spec: {{selector: {{app.kubernetes.io/name: web}}, ports: [{{name: http, port: 80, targetPort: http}}]}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: web, namespace: shop}}
spec: {{minAvailable: 1, selector: {{matchLabels: {{app.kubernetes.io/name: web}}}}}}
---
apiVersion: v1
kind: Service
metadata: {{name: redis, namespace: shop}}
spec: {{clusterIP: None, selector: {{app: redis}}, ports: [{{name: redis, port: 6379}}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: redis, namespace: shop}}
spec:
  serviceName: redis
  replicas: 2
  selector: {{matchLabels: {{app: redis}}}}
  template:
    metadata: {{labels: {{app: redis}}}}
    spec:
      terminationGracePeriodSeconds: 1
{_RESTRICTED % {"user": 999}}\
      containers:
      - name: redis
        image: redis:7.4-alpine
        args: [redis-server, --save, "", --appendonly, "no"]
        ports: [{{name: redis, containerPort: 6379}}]
        securityContext:
{_CONTAINER}\
        readinessProbe: {{tcpSocket: {{port: redis}}, periodSeconds: 1}}
        resources: {{requests: {{cpu: 10m, memory: 16Mi}}, limits: {{cpu: 200m, memory: 32Mi}}}}
        volumeMounts: [{{name: data, mountPath: /data}}]
      volumes: [{{name: data, emptyDir: {{}}}}]
"""

NODE_EXPORTER = """\
apiVersion: v1
kind: Namespace
metadata: {name: monitoring, labels: {pod-security.kubernetes.io/enforce: privileged}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: node-exporter, namespace: monitoring}
automountServiceAccountToken: false
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: node-exporter, namespace: monitoring, labels: {app.kubernetes.io/name: node-exporter}}
spec:
  selector: {matchLabels: {app.kubernetes.io/name: node-exporter}}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 10%}}
  template:
    metadata: {labels: {app.kubernetes.io/name: node-exporter}}
    spec:
      serviceAccountName: node-exporter
      hostPID: true
      nodeSelector: {kubernetes.io/os: linux}
      priorityClassName: system-node-critical
      tolerations: [{operator: Exists}]
      securityContext: {runAsNonRoot: true, runAsUser: 65534, runAsGroup: 65534, fsGroup: 65534}
      terminationGracePeriodSeconds: 1
      containers:
      - name: node-exporter
        image: quay.io/prometheus/node-exporter:v1.9.1
        args: [--path.procfs=/host/proc, --path.sysfs=/host/sys, --path.rootfs=/host/root, --web.listen-address=:9100]
        ports: [{name: metrics, containerPort: 9100}]
        env:
        - {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
        resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 250m, memory: 64Mi}}
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL], add: [SYS_TIME]}}
        livenessProbe: {httpGet: {path: /metrics, port: metrics}}
        readinessProbe: {httpGet: {path: /metrics, port: metrics}, periodSeconds: 1}
        volumeMounts:
        - {name: root, mountPath: /host, mountPropagation: HostToContainer, readOnly: true}
      volumes: [{name: root, hostPath: {path: /}}]
"""

CERT_MANAGER = """\
apiVersion: v1
kind: Namespace
metadata: {name: cert-manager}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: certificates.cert-manager.io, labels: {app.kubernetes.io/instance: cert-manager}}
spec:
  group: cert-manager.io
  scope: Namespaced
  names: {kind: Certificate, listKind: CertificateList, plural: certificates, singular: certificate, shortNames: [cert],
          categories: [cert-manager]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type == "Ready")].status'}
    - {name: Secret, type: string, jsonPath: .spec.secretName}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          apiVersion: {type: string}
          kind: {type: string}
          metadata: {type: object}
          spec:
            type: object
            required: [issuerRef, secretName]
            properties:
              secretName: {type: string}
              dnsNames: {type: array, items: {type: string}}
              duration: {type: string}
              issuerRef:
                type: object
                required: [name]
                properties: {name: {type: string}, kind: {type: string, default: Issuer}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: cert-manager, namespace: cert-manager}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: cert-manager-controller-certificates}
rules:
- {apiGroups: [cert-manager.io], resources: [certificates, certificates/status], verbs: [get, list, watch, update, patch]}
- {apiGroups: [""], resources: [events], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: cert-manager-controller-certificates}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cert-manager-controller-certificates}
subjects: [{kind: ServiceAccount, name: cert-manager, namespace: cert-manager}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: cert-manager:leaderelection, namespace: cert-manager}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [cert-manager-controller], verbs: [get, update]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cert-manager, namespace: cert-manager, labels: {app: cert-manager}}
spec:
  selector: {matchLabels: {app: cert-manager}}
  template:
    metadata:
      labels: {app: cert-manager}
      annotations: {prometheus.io/scrape: "true", prometheus.io/port: "9402"}
    spec:
      serviceAccountName: cert-manager
      enableServiceLinks: false
      nodeSelector: {kubernetes.io/os: linux}
      terminationGracePeriodSeconds: 1
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: cert-manager-controller
        image: quay.io/jetstack/cert-manager-controller:v1.18.2
        imagePullPolicy: IfNotPresent
        args: [--v=2, --cluster-resource-namespace=$(POD_NAMESPACE), --leader-election-namespace=kube-system]
        ports: [{containerPort: 9402, name: http-metrics, protocol: TCP}]
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        env:
        - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
        readinessProbe: {exec: {command: [test, -s, /tmp/certificates]}, periodSeconds: 1}
"""
CERTIFICATE = """\
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web, namespace: cert-manager}
spec: {secretName: web-tls, dnsNames: [web.example.com], issuerRef: {name: ca}}
"""

OPERATOR = """\
apiVersion: v1
kind: Namespace
metadata: {name: greetings}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: greetings.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Greeting, plural: greetings, singular: greeting}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {to: {type: string, maxLength: 20}}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: operator, namespace: greetings}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: operator, namespace: greetings}
rules:
- {apiGroups: [example.com], resources: [greetings], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [configmaps], verbs: [get, create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: operator, namespace: greetings}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: operator}
subjects: [{kind: ServiceAccount, name: operator, namespace: greetings}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: operator, namespace: greetings}
spec:
  selector: {matchLabels: {control-plane: operator}}
  template:
    metadata: {labels: {control-plane: operator}}
    spec:
      serviceAccountName: operator
      terminationGracePeriodSeconds: 1
      securityContext: {runAsNonRoot: true}
      containers:
      - name: manager
        image: ghcr.io/example/greeting-operator:v0.3.0
        env:
        - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
        resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 500m, memory: 64Mi}}
"""
GREETING = """\
apiVersion: example.com/v1
kind: Greeting
metadata: {name: hello-world, namespace: greetings}
spec: {to: world}
"""
