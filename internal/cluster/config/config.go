// SPDX-License-Identifier: Apache-2.0

// Package config is the agent's configuration: one file, YAML or JSON, on the node or mounted from a ConfigMap. Load
// reads it, sets defaults and validates it; errors name the path of the key and its value. Flags of `weft agent`
// override it afterwards, and Check validates the result again.
//
// docs/reference/configuration.md is generated from the comments and the defaults in this file:
//
//	go test ./internal/cluster/config -run TestReference -update
package config

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/flow"
)

// Config is the whole file. Every key is optional.
type Config struct {
	// Node is the node's name in the cluster; empty is the host name, as the kubelet uses it.
	Node string `json:"node"`
	// Socket is where `weft-cni` finds the agent; only root may connect.
	Socket string `json:"socket"`
	// StateDir is the directory of the ledger of attachments; best on a file system that a boot empties.
	StateDir string `json:"stateDir"`
	// StoreDir is a directory with the cluster's manifests, without Kubernetes.
	StoreDir string `json:"storeDir"`
	// AddressDir is the directory of host-local's addresses of networks without `dataDir`, as in the reference plugin.
	AddressDir string `json:"addressDir"`
	// ReadyFile is written, with the agent's process id, once calls are answered.
	ReadyFile string `json:"readyFile"`
	// LogLevel is the lowest level that is logged: DEBUG, INFO, WARN or ERROR. A change of this key is applied while the
	// agent runs; every other key needs a restart of the agent, which does not disrupt pods.
	LogLevel slog.Level `json:"logLevel"`

	// Kubernetes configures the access to the API server.
	Kubernetes Kubernetes `json:"kubernetes"`
	// Etcd is an etcd with the cluster's objects, without Kubernetes.
	Etcd Etcd `json:"etcd"`
	// Network is the pods' network.
	Network Network `json:"network"`
	// BGP configures the announcement of the node's prefixes to routers, and routes that are learned from them.
	BGP BGP `json:"bgp"`
	// LoadBalancer configures the addresses of Services of type LoadBalancer.
	LoadBalancer LoadBalancer `json:"loadBalancer"`
	// Flannel configures the interoperation with flannel.
	Flannel Flannel `json:"flannel"`
	// Multus holds Multus' keys for the mode `multus`.
	Multus Multus `json:"multus"`
	// Policy configures the enforcement of NetworkPolicy.
	Policy Policy `json:"policy"`
	// Observe selects what the agent observes of connections while `weft observe` does not ask.
	Observe Observe `json:"observe"`
	// VirtualMachines are settings for pods with VMs.
	VirtualMachines VirtualMachines `json:"virtualMachines"`
	// Runtime configures the access to the container runtime.
	Runtime Runtime `json:"runtime"`
	// Install are the runtime's directories of plugins and configurations, as mounted in the agent.
	Install Install `json:"install"`
	// Metrics configures Prometheus' metrics.
	Metrics Metrics `json:"metrics"`
}

// BGP configures the node's BGP speaker, which is the program weft-bgp. Its peers and what it announces are configured by
// objects: BGPConfiguration, BGPPeer and BGPFilter, Calico's or weft's own.
type BGP struct {
	// Socket is the unix socket of weft-bgp, for example /run/weft/bgp.sock; empty: the node does not speak BGP. Packets to
	// unused addresses of the node's own PodCIDRs are rejected then, as with `network.blackhole`.
	Socket string `json:"socket"`
	// SecretNamespace is the namespace of the Secrets with the passwords of sessions.
	SecretNamespace string `json:"secretNamespace"`
	// SecretInterval is how often these Secrets are read again, for a changed password: from 1s to 1h. Each is a request of
	// each node to the API server.
	SecretInterval Duration `json:"secretInterval"`
}

// LoadBalancer configures the addresses of Services of type LoadBalancer, which the controller assigns from pools with
// `allowedUses: [LoadBalancer]`. Without such a pool nothing is done.
type LoadBalancer struct {
	// AssignIPs is to which Services without a loadBalancerClass addresses are assigned: `AllServices`, or
	// `RequestedServicesOnly`: to those that request an address or a pool by an annotation or `spec.loadBalancerIP`.
	AssignIPs string `json:"assignIPs"`
	// Announce makes one ready node answer ARP requests and neighbor solicitations for each of these addresses, on the link
	// with its subnet or the uplink. Nodes with `bgp.socket`, and of another vendor's network, take no part.
	Announce bool `json:"announce"`
}

// Kubernetes configures the access to the API server. With neither key the agent does not use Kubernetes.
type Kubernetes struct {
	// InCluster uses the service account of the agent's pod. A renewed token is read again.
	InCluster bool `json:"inCluster"`
	// Kubeconfig is the path of a kubeconfig file, for an agent outside of a pod.
	Kubeconfig string `json:"kubeconfig"`
	// Server overrides the URL of the API server of InCluster or Kubeconfig, for example to be independent of kube-proxy.
	Server string `json:"server"`
}

// Etcd configures the access to an etcd in which hosts without Kubernetes share objects: pools of addresses, their
// blocks, and the networks that pods may request.
type Etcd struct {
	// Endpoints are the URLs of its members; none: etcd is not used.
	Endpoints []string `json:"endpoints"`
	// Prefix is the prefix of all keys.
	Prefix string `json:"prefix"`
	// CAFile is the file with the CA certificate of the members.
	CAFile string `json:"caFile"`
	// CertFile is the file with the agent's client certificate.
	CertFile string `json:"certFile"`
	// KeyFile is the file with its key.
	KeyFile string `json:"keyFile"`
	// Username is the agent's user in an etcd with authentication.
	Username string `json:"username"`
	// Password is the user's password.
	Password string `json:"password"`
}

// Network is the pods' network.
type Network struct {
	// Mode is the CNI configuration that the agent installs: `none`; `cluster`, weft's own network as the pods' default
	// network; `flannel`, that of a kube-flannel ConfigMap, replacing flannel; `multus`, the default network of another
	// vendor behind weft, replacing Multus; or `policy`, the network of another vendor, whose plugins the agent executes and
	// to which it adds nothing but the enforcement of policies. In the modes `multus` and `policy` the agent removes the
	// routes of earlier modes when it starts.
	Mode Mode `json:"mode"`
	// Name is the name of the network in mode `cluster`.
	Name string `json:"name"`
	// Design is how pods are connected to their node in mode `cluster`: `routed`, a veth pair and a route for each pod, or
	// `bridge`.
	Design Design `json:"design"`
	// Permit are privileged annotations of Calico that pods may use on weft's own network: `ipAddrsNoIpam`, `floatingIPs`,
	// `allowedSourcePrefixes`. With them, a user who may create pods can take addresses of others.
	Permit []string `json:"permit"`
	// PermitPaths are the files and directories of the node, including their content, that a NetworkAttachmentDefinition
	// may name by `dataDir`, `resolvConf`, `subnetFile`, `configuration_path` and `daemonSocketPath`: the agent accesses
	// these as root. addressDir is always permitted; `/` permits all. Configurations in the node's own directories may
	// name any path.
	PermitPaths []string `json:"permitPaths"`
	// PodAddresses are further prefixes whose addresses all nodes route to if pods use them by `ipAddrsNoIpam` or
	// `floatingIPs`; none: only the pod's own node does. The value must be the same on all nodes.
	PodAddresses []netip.Prefix `json:"podAddresses"`
	// Addresses selects the IPAM of pods: `podCIDRs`, the prefixes of their node, or `pools`, blocks of cluster-wide
	// pools; empty is `pools` if Pools is not empty.
	Addresses Addresses `json:"addresses"`
	// Pools are cluster-wide pools of addresses for pods.
	Pools []Pool `json:"pools"`
	// PodCIDRs are the prefixes of this node's pods, at most one per family; none: those of the Node object.
	PodCIDRs []netip.Prefix `json:"podCIDRs"`
	// ClusterCIDRs are the prefixes of the pods of all nodes. Packets of pods to other destinations are masqueraded if
	// Masquerade is set; none: packets are never masqueraded.
	ClusterCIDRs []netip.Prefix `json:"clusterCIDRs"`
	// Interface is the uplink to the other nodes: `auto` is the link with the node's own address (the published one, else
	// its InternalIP), else the name of a link. Its address is published to the other nodes in Kubernetes.
	Interface string `json:"interface"`
	// MTU of the pods' interfaces, in bytes; 0 is automatic: with `vxlan` that of the uplink less 50 bytes, 70 if pods
	// have IPv6; with `udp` less 28 or 48, with `ipip` less 20, with `wireguard` less 80; else that of a new link, 1500.
	MTU int `json:"mtu"`
	// MTUFile is a file to which the MTU of the pods' interfaces is written, for other plugins: Calico's with `"mtu": 0`
	// reads /var/lib/calico/mtu. Empty: none is written.
	MTUFile string `json:"mtuFile"`
	// PodIPAnnotations writes Calico's annotations `cni.projectcalico.org/podIP` and `cni.projectcalico.org/podIPs` to pods, for
	// other programs that read them, with the request that writes the network status.
	PodIPAnnotations bool `json:"podIPAnnotations"`
	// Encapsulation is the backend between nodes: `host-gw`, routes without encapsulation, for nodes on one network;
	// `vxlan`; `udp`, flannel's, forwarded by the agent itself; `ipip`, IPv4 only; `wireguard`, encrypted; or `bgp`, routes
	// that are learned (needs `bgp.socket`). A node that advertises another backend is reached by that one.
	Encapsulation string `json:"encapsulation"`
	// VNI is the number of the VXLAN, 1 to 16777215.
	VNI int `json:"vni"`
	// VXLANPort is the UDP port of the VXLAN.
	VXLANPort int `json:"vxlanPort"`
	// VXLANGBP carries the sender's mark in the VXLAN as a group policy tag.
	VXLANGBP bool `json:"vxlanGBP"`
	// VXLANLearning enables learning of the VXLAN device. The agent configures the forwarding entries anyway.
	VXLANLearning bool `json:"vxlanLearning"`
	// UnderlayMTU is the MTU between nodes, in bytes, for `vxlan` and `wireguard`; 0 is that of the uplink.
	UnderlayMTU int `json:"underlayMTU"`
	// DirectRouting disables `vxlan` or `ipip` between nodes on one network.
	DirectRouting bool `json:"directRouting"`
	// UDPPort is the UDP port of `udp`.
	UDPPort int `json:"udpPort"`
	// WireguardPort is the UDP port of `wireguard`.
	WireguardPort int `json:"wireguardPort"`
	// WireguardPortV6 is the UDP port of its device for IPv6.
	WireguardPortV6 int `json:"wireguardPortV6"`
	// WireguardKeyFile is the file of the node's private key; it is created if missing.
	WireguardKeyFile string `json:"wireguardKeyFile"`
	// WireguardPSKFile is the file of a pre-shared key of all nodes; empty: none.
	WireguardPSKFile string `json:"wireguardPSKFile"`
	// WireguardKeepalive is the interval of keepalives to other nodes; 0 disables them.
	WireguardKeepalive Duration `json:"wireguardKeepalive"`
	// WireguardMode is `separate`, a device for each family, or `ipv4`, `ipv6` or `auto`: one device with an underlay of
	// that family.
	WireguardMode string `json:"wireguardMode"`
	// Masquerade masquerades (SNAT) packets of pods to destinations outside of ClusterCIDRs with the node's address.
	Masquerade bool `json:"masquerade"`
	// NonMasqueradeCIDRs are further destinations without masquerading. Packets from there are also accepted from tunnels.
	NonMasqueradeCIDRs []netip.Prefix `json:"nonMasqueradeCIDRs"`
	// MasqAgentConfig is the path of a configuration of ip-masq-agent (`nonMasqueradeCIDRs`, `masqLinkLocal`,
	// `masqLinkLocalIPv6`, `resyncInterval`), whose exceptions apply too and are watched; without the file only link-local
	// destinations are excepted.
	MasqAgentConfig string `json:"masqAgentConfig"`
	// MasqueradeRandom uses random ports for masqueraded connections, so that concurrent ones do not conflict.
	MasqueradeRandom bool `json:"masqueradeRandom"`
	// SourceGuard drops spoofed packets of pods: with a MAC or an address that is not the pod's own, also in ARP and
	// neighbor discovery. False disables it for pods of weft's own network in the design `bridge`; it is always enabled
	// for routed pods. Other networks have the key `guard` of the plugin bridge.
	SourceGuard bool `json:"sourceGuard"`
	// DADTimeout is how long ADD probes a pod's addresses for duplicates on the bridge in the design `bridge`, as 200ms, at
	// most 10s; 0: it does not. Other networks have the key `dadTimeout` of their plugin.
	DADTimeout Duration `json:"dadTimeout"`
	// FastPath is the path of established flows of routed pods, within the node and over `host-gw` and `vxlan`: `off`, that
	// of their first packets; `ebpf`, redirection by eBPF programs, which needs Linux 6.6; `flowtable`, a flowtable of
	// nftables, which needs Linux 6.4 and its modules; or `auto`, the first one of `ebpf` and `flowtable` that the kernel
	// has ([the fast path](../concepts/fast-path.md)). Where it cannot be used, `weft status` says why, and packets take the
	// ordinary path.
	FastPath string `json:"fastPath"`
	// Blackhole rejects packets to unused addresses of the node's own PodCIDRs, instead of forwarding them.
	Blackhole bool `json:"blackhole"`
}

// Flannel configures the interoperation with flannel. NetConf, CNIConf and SubnetFile are for network.mode `flannel`
// only.
type Flannel struct {
	// Publish publishes in Kubernetes how the node is reached, in flannel's annotations of its Node, and that its network
	// is available; nodes of flannel and of weft reach each other by these annotations. Without Kubernetes it publishes
	// WireGuard keys and VTEP MACs in the Node's manifest. The annotations of other nodes are always read.
	Publish bool `json:"publish"`
	// AnnotationPrefix is the prefix of these annotations: flannel's `--kube-annotation-prefix`.
	AnnotationPrefix string `json:"annotationPrefix"`
	// NetConf is flannel's own configuration of the network, the key `net-conf.json` of the ConfigMap: it has the prefix
	// of all nodes' pods and the backend with its keys, instead of those in Network.
	NetConf string `json:"netConf"`
	// CNIConf is the key `cni-conf.json` of the ConfigMap. It is installed in install.confDir as `10-flannel.conflist`, as
	// flannel does, and the agent's configuration, which precedes it, is derived from it; without the file it is derived
	// from the installed one.
	CNIConf string `json:"cniConf"`
	// SubnetFile is the file that is written for the plugin `flannel`.
	SubnetFile string `json:"subnetFile"`
}

// Multus holds Multus' keys for network.mode `multus`. They are written into 00-multus.conf; an empty key has Multus'
// default.
type Multus struct {
	// NamespaceIsolation keeps pods from using networks of other namespaces.
	NamespaceIsolation bool `json:"namespaceIsolation"`
	// GlobalNamespaces are namespaces whose networks every pod may use; `default` is always one.
	GlobalNamespaces []string `json:"globalNamespaces"`
	// SystemNamespaces are namespaces whose pods get no DefaultNetworks; empty is `kube-system`.
	SystemNamespaces []string `json:"systemNamespaces"`
	// Namespace is the namespace of the networks of DefaultNetworks; empty is `kube-system`.
	Namespace string `json:"namespace"`
	// DefaultNetworks are further networks for every pod.
	DefaultNetworks []string `json:"defaultNetworks"`
	// ReadinessIndicatorFile is a file that the default network writes when it is ready; pods wait for it.
	ReadinessIndicatorFile string `json:"readinessIndicatorFile"`
	// NetworkDir is the directory with the configurations of networks whose objects have none; empty is
	// `/etc/cni/multus/net.d`.
	NetworkDir string `json:"networkDir"`
	// LogFile is the file to which a line is written for each network that is attached, checked or detached.
	LogFile string `json:"logFile"`
	// LogLevel is `panic`, `error`, `verbose` or `debug`; empty: nothing is logged there.
	LogLevel string `json:"logLevel"`
}

// Policy configures the enforcement of NetworkPolicy.
type Policy struct {
	// Mode is whether NetworkPolicy, ClusterNetworkPolicy and MultiNetworkPolicy objects are enforced: `enforce`, `none`,
	// or `auto`, which is `enforce` with network.mode `cluster` and `none`, where no other vendor enforces them.
	Mode string `json:"mode"`
	// Established is how connections are handled that a changed policy no longer allows: `cut` ends them, `keep` keeps
	// them.
	Established string `json:"established"`
	// Log selects the packets that are logged with the names of the deciding policies: `denied`, at most 10 per second and
	// policy, or `none`.
	Log string `json:"log"`
	// LogGroup is the nflog group for these packets; no other program may listen to it.
	LogGroup int `json:"logGroup"`
}

// Observe configures `weft observe`.
type Observe struct {
	// Level is what the agent keeps of the last minutes, 8192 flows at most: `off`, nothing; `denied`, packets that
	// policies deny or the kernel drops; or `flows`, connections, too. With `flows` it sets
	// net.netfilter.nf_conntrack_acct, so that the kernel counts packets and bytes, and with another level restores it.
	Level string `json:"level"`
	// File writes what the level has to a file.
	File ObserveFile `json:"file"`
	// IPFIX sends it to a collector.
	IPFIX ObserveIPFIX `json:"ipfix"`
	// OTLP sends it to a server of OpenTelemetry's logs.
	OTLP ObserveOTLP `json:"otlp"`
	// Listen is the address, `HOST:PORT` or `:PORT`, at which the agent serves flows over TLS to those who may get
	// flows.weft.dev in a namespace ([without the right to
	// execute](../troubleshooting/observe.md#without-the-right-to-execute)); empty: none. It requires `kubernetes`.
	Listen string `json:"listen"`
}

// ObserveFile is a file of flows, one JSON document a line.
type ObserveFile struct {
	// Path of the file; empty: none. Its directory must exist. The container of the agent needs a volume for it.
	Path string `json:"path"`
	// MaxMegabytes is the size at which the file is renamed to `PATH.1`, that to `PATH.2` and so on. It may be renamed by
	// another program, too.
	MaxMegabytes int `json:"maxMegabytes"`
	// Keep is how many renamed files are kept, 0 to 100.
	Keep int `json:"keep"`
}

// ObserveIPFIX is a collector of IPFIX (RFC 7011).
type ObserveIPFIX struct {
	// Address of the collector, `udp://HOST:PORT` or `tcp://HOST:PORT`; empty: none. Without a port it is 4739.
	Address string `json:"address"`
	// Enterprise is the private enterprise number of the strings: 1 node, 2 source, 3 destination, 4 Service, 5 verdict,
	// 6 policies or reason. 0 is 32473, the number for examples: weft has none of its own.
	Enterprise int `json:"enterprise"`
}

// ObserveOTLP is a server of OTLP/HTTP, with JSON.
type ObserveOTLP struct {
	// URL of the server, as `http://collector.observability:4318`; empty: none. The path `/v1/logs` is added if it has none.
	URL string `json:"url"`
	// HeadersFile has headers that are added to each request, a line `NAME: VALUE` for each, as from a Secret. It is read
	// again when the server refuses a request.
	HeadersFile string `json:"headersFile"`
}

// VirtualMachines are settings for pods with VMs (KubeVirt's).
type VirtualMachines struct {
	// KeepAddresses is whether a VM keeps its addresses and MAC, whichever pod it runs in: `possible`, if IPAM supports
	// it; `always`, else the pod does not start; `never`. The VM's annotation `weft.dev/keep-vm-address` takes precedence
	// ([pools and blocks](../concepts/pools-and-blocks.md)).
	KeepAddresses string `json:"keepAddresses"`
	// Macvtaps is a file with `DP_MACVTAP_CONF` of macvtap-cni, a list of resources of macvtaps that the agent offers to
	// the kubelet as a device plugin ([VMs on KubeVirt](../tasks/kubevirt.md)); empty, or a file that does not exist: the
	// agent is no device plugin. A change of the file is applied while the agent runs.
	Macvtaps string `json:"macvtaps"`
}

// Runtime configures the access to the container runtime.
type Runtime struct {
	// Endpoint is the runtime's CRI socket, as `unix:///run/containerd/containerd.sock`; `auto` uses the first existing
	// one, containerd's or CRI-O's; empty: sandboxes are not listed and there is no garbage collection.
	Endpoint string `json:"endpoint"`
	// GCInterval is how often the attachments are compared with the runtime's list of sandboxes.
	GCInterval Duration `json:"gcInterval"`
}

// Install are the runtime's directories, as mounted in the agent.
type Install struct {
	// ConfDir is the runtime's configuration directory. It is required by the modes `cluster` and `multus`, and created if
	// missing.
	ConfDir string `json:"confDir"`
	// BinDir is the runtime's plugin directory; `weft doctor` checks it for the plugins that the runtime executes.
	BinDir string `json:"binDir"`
	// HostRoot is where the node's root file system is mounted, if the agent runs in a container: other vendors' plugins
	// are executed there, with the node's own programs.
	HostRoot string `json:"hostRoot"`
}

// Metrics configures Prometheus' metrics.
type Metrics struct {
	// Address is where `/metrics`, `/healthz`, `/readyz` and `/loglevel` are served, as `127.0.0.1:9119` or `:9119`; empty
	// disables it. Changing the log level, `/attachments` and `/addresses` are available on the node itself only.
	Address string `json:"address"`
	// Peers is for which other nodes metrics are served: `none`; `auto`, for each of up to 100, in a larger cluster only
	// the number, those that are down, the longest round trip time and the sum; or `all`, for each. They are probed with
	// at most one packet a second in total.
	Peers string `json:"peers"`
}

// The values of Network.FastPath.
const (
	FastPathOff       = "off"
	FastPathAuto      = "auto"
	FastPathEBPF      = "ebpf"
	FastPathFlowtable = "flowtable"
)

// The values of Metrics.Peers.
const (
	PeersNone = "none"
	PeersAuto = "auto"
	PeersAll  = "all"
)

// Duration is a duration in Go's notation, as 5m or 30s.
type Duration time.Duration

// UnmarshalText reads "5m".
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// MarshalText writes "5m0s".
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Default returns the configuration of an agent without a file.
func Default() Config {
	return Config{
		Socket: "/run/weft/agent.sock", StateDir: "/run/weft/agent", AddressDir: "/var/lib/cni/networks",
		Etcd: Etcd{Prefix: "/weft"}, BGP: BGP{SecretNamespace: "kube-system", SecretInterval: Duration(30 * time.Second)},
		LoadBalancer: LoadBalancer{AssignIPs: "AllServices", Announce: true},
		Network: Network{
			Mode: ModeNone, Name: "weft", Design: DesignRouted, Interface: "auto", Encapsulation: "host-gw", VNI: 1,
			VXLANPort: 8472,
			UDPPort:   8285, WireguardPort: 51820, WireguardPortV6: 51821, WireguardKeyFile: "/run/flannel/wgkey",
			WireguardMode:    "separate",
			MasqueradeRandom: true, SourceGuard: true, FastPath: FastPathOff,
			PermitPaths: []string{
				"/var/lib/cni", "/run/cni", "/run/flannel", "/etc/cni/net.d/whereabouts.d",
				"/etc/kubernetes/cni/net.d/whereabouts.d", "/etc/resolv.conf", "/run/systemd/resolve",
			},
		},
		Flannel: Flannel{
			Publish: true, AnnotationPrefix: "flannel.alpha.coreos.com", NetConf: "/etc/kube-flannel/net-conf.json",
			CNIConf: "/etc/kube-flannel/cni-conf.json", SubnetFile: "/run/flannel/subnet.env",
		},
		Policy:          Policy{Mode: PolicyAuto, Established: EstablishedCut, Log: LogNone, LogGroup: 9119},
		Observe:         Observe{Level: flow.LevelOff, File: ObserveFile{MaxMegabytes: 100, Keep: 3}},
		VirtualMachines: VirtualMachines{KeepAddresses: KeepPossible},
		Runtime:         Runtime{GCInterval: Duration(5 * time.Minute)},
		Metrics:         Metrics{Peers: PeersAuto},
	}
}
