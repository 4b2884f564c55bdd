"""Services, Endpoints and EndpointSlices."""

# ruff: noqa: E501 (one line per field)

TABLE = """
core.Service v1.Service | A name and an address for a set of pods.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 core.ServiceSpec! | Which pods, under which ports.
  status 3 core.ServiceStatus! | What a load balancer reports.
core.ServiceSpec v1.ServiceSpec | Which pods a service selects, and under which ports.
  ports 1 []core.ServicePort merge=port map=port,protocol | The ports of the service.
  selector 2 {string} atomic | Labels of its pods; without any, other parties write its endpoints.
  clusterIP 3 string | Its address, from the server's range; None for a headless service.
  clusterIPs 18 []string | Its addresses, one per address family; the first equals clusterIP.
  type 4 string/v1.ServiceType | ClusterIP, NodePort, LoadBalancer or ExternalName.
  externalIPs 5 []string | Further addresses whose traffic nodes accept for it.
  sessionAffinity 7 string/v1.ServiceAffinity | None, or ClientIP: a client stays with one pod.
  loadBalancerIP 8 string | No longer used.
  loadBalancerSourceRanges 9 []string | Clients that a load balancer accepts.
  externalName 10 string | The DNS name that an ExternalName service stands for.
  externalTrafficPolicy 11 string/v1.ServiceExternalTrafficPolicy | Cluster, or Local: only pods of the node that got the traffic.
  healthCheckNodePort 12 int32 | Port of the load balancer's health check, with the policy Local.
  publishNotReadyAddresses 13 bool | Whether pods count as ready endpoints whatever they report.
  sessionAffinityConfig 14 core.SessionAffinityConfig | How long a client stays with one pod.
  ipFamilies 19 []string/v1.IPFamily | IPv4 or IPv6, in the order of clusterIPs.
  ipFamilyPolicy 17 string/v1.IPFamilyPolicy* | SingleStack, PreferDualStack or RequireDualStack.
  allocateLoadBalancerNodePorts 20 bool* | Whether a LoadBalancer service gets node ports.
  loadBalancerClass 21 string* | Which load balancer serves it.
  internalTrafficPolicy 22 string/v1.ServiceInternalTrafficPolicy* | Cluster, or Local: only pods of the client's node.
  trafficDistribution 23 string* | How traffic prefers endpoints, such as PreferSameZone.
core.ServicePort v1.ServicePort | A port of a service.
  name 1 string | Name, needed where there are several.
  protocol 2 string/v1.Protocol default=TCP | TCP, UDP or SCTP.
  appProtocol 6 string* | What is spoken on it, such as kubernetes.io/h2c.
  port 3 int32! required | The port at the service's address.
  targetPort 4 IntOrString! | The port of the pods, by number or name.
  nodePort 5 int32 | The port at every node, from the server's range.
core.SessionAffinityConfig v1.SessionAffinityConfig | How a client stays with one pod.
  clientIP 1 core.ClientIPConfig | By the client's address.
core.ClientIPConfig v1.ClientIPConfig | How long a client stays with one pod.
  timeoutSeconds 1 int32* | Seconds after its last request.
core.ServiceStatus v1.ServiceStatus | What a load balancer reports.
  loadBalancer 1 core.LoadBalancerStatus! | Its addresses.
  conditions 2 []meta.Condition merge=type map=type | The service's conditions.
core.LoadBalancerStatus v1.LoadBalancerStatus | The addresses of a load balancer.
  ingress 1 []core.LoadBalancerIngress | One for each address.
core.LoadBalancerIngress v1.LoadBalancerIngress | One address of a load balancer.
  ip 1 string | As an IP address.
  hostname 2 string | As a name.
  ipMode 3 string/v1.LoadBalancerIPMode* | VIP or Proxy.
  ports 4 []core.PortStatus | Its ports.
core.PortStatus v1.PortStatus | A port of a load balancer.
  port 1 int32! required | Its number.
  protocol 2 string/v1.Protocol! required | TCP, UDP or SCTP.
  error 3 string* | What is wrong with it.
core.Endpoints v1.Endpoints | The addresses behind a service, as older clients read them.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  subsets 2 []core.EndpointSubset | Addresses with the same ports together.
core.EndpointSubset v1.EndpointSubset | Addresses that have the same ports.
  addresses 1 []core.EndpointAddress | Those that are ready.
  notReadyAddresses 2 []core.EndpointAddress | Those that are not.
  ports 3 []core.EndpointPort | The ports of each.
core.EndpointAddress v1.EndpointAddress atomic | One address.
  ip 1 string! required | The IP address.
  hostname 3 string | Its host name.
  nodeName 4 string* | The node it is on.
  targetRef 2 core.ObjectReference | The pod that has it.
core.EndpointPort v1.EndpointPort atomic | One port.
  name 1 string | Its name in the service.
  port 2 int32! required | Its number.
  protocol 3 string/v1.Protocol | TCP, UDP or SCTP.
  appProtocol 4 string* | What is spoken on it.
discovery.EndpointSlice v1.EndpointSlice | Some of the addresses behind a service.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  addressType 4 string/v1.AddressType! required | IPv4, IPv6 or FQDN.
  endpoints 2 []discovery.Endpoint! required | The addresses.
  ports 3 []discovery.EndpointPort! | The ports of each.
discovery.Endpoint v1.Endpoint | One pod or another place that serves.
  addresses 1 []string! required set | Its addresses; the first counts.
  conditions 2 discovery.EndpointConditions! | Whether it serves.
  hostname 3 string* | Its host name.
  targetRef 4 core.ObjectReference | The pod that it is.
  deprecatedTopology 5 {string} | No longer used.
  nodeName 6 string* | The node it is on.
  zone 7 string* | The zone it is in.
  hints 8 discovery.EndpointHints | Who should use it.
discovery.EndpointConditions v1.EndpointConditions | Whether an endpoint serves.
  ready 1 bool* | Serving and not terminating.
  serving 2 bool* | Whether its pod is ready, also while it terminates.
  terminating 3 bool* | Whether its pod is being deleted.
discovery.EndpointHints v1.EndpointHints | Who should use an endpoint.
  forZones 1 []discovery.ForZone | Clients in these zones.
  forNodes 2 []discovery.ForNode | Clients on these nodes.
discovery.ForZone v1.ForZone | A zone.
  name 1 string! required | Its name.
discovery.ForNode v1.ForNode | A node.
  name 1 string! required | Its name.
discovery.EndpointPort v1.EndpointPort atomic | One port.
  name 1 string* | Its name in the service.
  protocol 2 string/v1.Protocol* | TCP, UDP or SCTP.
  port 3 int32* | Its number; none stands for all ports.
  appProtocol 4 string* | What is spoken on it.
"""
