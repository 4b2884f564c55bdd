"""Ingresses, their classes, and network policies."""

TABLE = """
networking.Ingress v1.Ingress | Rules by which an ingress controller forwards HTTP to services.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 networking.IngressSpec! | Hosts, paths and where they lead.
  status 3 networking.IngressStatus! | What its controller reports.
networking.IngressSpec v1.IngressSpec | Hosts, paths and where they lead.
  ingressClassName 4 string* | The class, and with it the controller.
  defaultBackend 1 networking.IngressBackend | For requests that no rule concerns.
  tls 2 []networking.IngressTLS | Certificates.
  rules 3 []networking.IngressRule | One for each host.
networking.IngressTLS v1.IngressTLS | A certificate and its hosts.
  hosts 1 []string | The hosts.
  secretName 2 string | Secret with the certificate and its key.
networking.IngressRule v1.IngressRule | The paths of a host.
  host 1 string | The host, `*.example.com` for all below a domain; all hosts without it.
  http 2.1 networking.HTTPIngressRuleValue | Its paths.
networking.HTTPIngressRuleValue v1.HTTPIngressRuleValue | Paths of a host.
  paths 1 []networking.HTTPIngressPath! required | The paths.
networking.HTTPIngressPath v1.HTTPIngressPath | A path and where it leads.
  path 1 string | The path.
  pathType 3 string/v1.PathType*! required | Exact, Prefix, or ImplementationSpecific: as the controller understands it.
  backend 2 networking.IngressBackend! required | Where it leads.
networking.IngressBackend v1.IngressBackend | Where requests are forwarded to.
  service 4 networking.IngressServiceBackend | A service.
  resource 3 core.TypedLocalObjectReference | Another object of the namespace.
networking.IngressServiceBackend v1.IngressServiceBackend | A port of a service.
  name 1 string! required | Name of the service.
  port 2 networking.ServiceBackendPort! | Its port.
networking.ServiceBackendPort v1.ServiceBackendPort atomic | A port by name or number.
  name 1 string | Its name.
  number 2 int32 | Its number.
networking.IngressStatus v1.IngressStatus | What its controller reports.
  loadBalancer 1 networking.IngressLoadBalancerStatus! | The addresses that it is reached at.
networking.IngressLoadBalancerStatus v1.IngressLoadBalancerStatus | The addresses of an ingress.
  ingress 1 []networking.IngressLoadBalancerIngress | One for each address.
networking.IngressLoadBalancerIngress v1.IngressLoadBalancerIngress | One address of an ingress.
  ip 1 string | As an IP address.
  hostname 2 string | As a name.
  ports 4 []networking.IngressPortStatus | Its ports.
networking.IngressPortStatus v1.IngressPortStatus | A port of an ingress.
  port 1 int32! required | Its number.
  protocol 2 string/v1.Protocol! required | TCP, UDP or SCTP.
  error 3 string* | What is wrong with it.
networking.IngressClass v1.IngressClass | A class of ingresses, which one controller serves.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 networking.IngressClassSpec! | The controller and its parameters.
networking.IngressClassSpec v1.IngressClassSpec | The controller and its parameters.
  controller 1 string | The controller, such as example.com/ingress; it cannot be changed.
  parameters 2 networking.IngressClassParametersReference | An object with settings for the controller.
networking.IngressClassParametersReference v1.IngressClassParametersReference | A reference to an object with settings.
  apiGroup 1 string* | Its group; the core group without it.
  kind 2 string! required | Its kind.
  name 3 string! required | Its name.
  scope 4 string*! | Cluster or Namespace.
  namespace 5 string* | Its namespace, with the scope Namespace.
networking.NetworkPolicy v1.NetworkPolicy | Which traffic pods may receive and send.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 networking.NetworkPolicySpec! | The pods and their traffic.
networking.NetworkPolicySpec v1.NetworkPolicySpec | The pods and their traffic.
  podSelector 1 meta.LabelSelector! | The pods of its namespace that it concerns; all if it is empty.
  ingress 2 []networking.NetworkPolicyIngressRule | What they may receive.
  egress 3 []networking.NetworkPolicyEgressRule | What they may send.
  policyTypes 4 []string/v1.PolicyType | Ingress, Egress or both: what is limited.
networking.NetworkPolicyIngressRule v1.NetworkPolicyIngressRule | Traffic that pods may receive.
  ports 1 []networking.NetworkPolicyPort | At these ports; at all without any.
  from 2 []networking.NetworkPolicyPeer | From these peers; from all without any.
networking.NetworkPolicyEgressRule v1.NetworkPolicyEgressRule | Traffic that pods may send.
  ports 1 []networking.NetworkPolicyPort | To these ports; to all without any.
  to 2 []networking.NetworkPolicyPeer | To these peers; to all without any.
networking.NetworkPolicyPort v1.NetworkPolicyPort | A port, or a range of ports.
  protocol 1 string/v1.Protocol* | TCP, UDP or SCTP.
  port 2 IntOrString* | By number or name.
  endPort 3 int32* | The last port of a range.
networking.NetworkPolicyPeer v1.NetworkPolicyPeer | The other side of allowed traffic.
  podSelector 1 meta.LabelSelector | Pods, of its namespace or of those that are selected.
  namespaceSelector 2 meta.LabelSelector | Namespaces.
  ipBlock 3 networking.IPBlock | A range of addresses.
networking.IPBlock v1.IPBlock | A range of addresses.
  cidr 1 string! required | The range, such as 192.168.1.0/24.
  except 2 []string | Ranges in it that are not meant.
"""
