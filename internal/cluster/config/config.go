// SPDX-License-Identifier: Apache-2.0

// Package config is the agent's configuration: one file, YAML or JSON, as a file of the node or the key of a ConfigMap
// that is mounted. Load reads it, completes it with the defaults and refuses what cannot work, with the path of the key
// and its value. Flags of `weft agent` are set over it afterwards, and Check looks at the whole once more.
//
// docs/configuration.md is made of the comments and the defaults in this file:
//
//	go test ./internal/cluster/config -run TestReference -update
package config

import (
	"log/slog"
	"net/netip"
	"time"
)

// Config is the whole file. Every key may be left out.
type Config struct {
	// Node is the node's name in the cluster; empty is the machine's host name, as the kubelet takes it.
	Node string `json:"node"`
	// Socket is where `weft-cni` finds the agent; only root may connect.
	Socket string `json:"socket"`
	// StateDir is the directory of the ledger of attachments; best on a file system that a boot empties.
	StateDir string `json:"stateDir"`
	// StoreDir is a directory of the cluster's manifests, where there is no Kubernetes.
	StoreDir string `json:"storeDir"`
	// AddressDir is where host-local keeps the addresses of a network whose configuration names no `dataDir`, as the
	// reference plugin has it.
	AddressDir string `json:"addressDir"`
	// ReadyFile is written, with the agent's process id, once calls are answered.
	ReadyFile string `json:"readyFile"`
	// LogLevel is the least level that is logged: DEBUG, INFO, WARN or ERROR. A change of this key in the file is followed
	// while the agent runs; every other key needs a restart of the agent, which pods do not notice.
	LogLevel slog.Level `json:"logLevel"`

	// Kubernetes says how the API server is reached.
	Kubernetes Kubernetes `json:"kubernetes"`
	// Etcd is an etcd with the cluster's objects, where there is no Kubernetes.
	Etcd Etcd `json:"etcd"`
	// Network is the pods' network.
	Network Network `json:"network"`
	// Flannel is what weft has in common with the nodes of a flannel cluster.
	Flannel Flannel `json:"flannel"`
	// Multus holds Multus' keys for the mode `multus`.
	Multus Multus `json:"multus"`
	// Policy is about NetworkPolicy.
	Policy Policy `json:"policy"`
	// VirtualMachines are about pods in which machines run.
	VirtualMachines VirtualMachines `json:"virtualMachines"`
	// Runtime is the container runtime's side.
	Runtime Runtime `json:"runtime"`
	// Install says where the runtime looks for plugins and configurations, as the agent sees these directories.
	Install Install `json:"install"`
	// Metrics are for Prometheus.
	Metrics Metrics `json:"metrics"`
}

// Kubernetes says how the API server is reached. With neither key the agent knows no Kubernetes.
type Kubernetes struct {
	// InCluster takes the address and the token that every pod is given. The token's file is read again as it is renewed.
	InCluster bool `json:"inCluster"`
	// Kubeconfig is the path of a kubeconfig file, for an agent that is no pod.
	Kubeconfig string `json:"kubeconfig"`
	// Server is the URL of the API server where it is another than that of InCluster or Kubeconfig: an agent that must not
	// wait for kube-proxy names the server itself.
	Server string `json:"server"`
}

// Etcd says how an etcd is reached in which hosts without Kubernetes keep what they share: pools of addresses, their
// blocks, and the networks that pods may ask for.
type Etcd struct {
	// Endpoints are the URLs of its members; none: there is no etcd.
	Endpoints []string `json:"endpoints"`
	// Prefix stands before all keys.
	Prefix string `json:"prefix"`
	// CAFile is the file of the certificate authority that the members are known by.
	CAFile string `json:"caFile"`
	// CertFile is the file of the certificate that the agent shows.
	CertFile string `json:"certFile"`
	// KeyFile is the file of its key.
	KeyFile string `json:"keyFile"`
	// Username is the agent's name in an etcd that knows users.
	Username string `json:"username"`
	// Password is that user's.
	Password string `json:"password"`
}

// Network is the pods' network.
type Network struct {
	// Mode is what the agent puts into the runtime's configuration directory: `none`; `cluster`, weft's own network as the
	// pods' first; `flannel`, that of a kube-flannel ConfigMap, in flannel's place; or `multus`, the first network of
	// another vendor with weft in front of it, as Multus does. An agent that starts in mode `multus` takes the routes away
	// that one in another mode has left.
	Mode Mode `json:"mode"`
	// Name is the name of the network in mode `cluster`.
	Name string `json:"name"`
	// Design is how pods are joined to their node in mode `cluster`: `routed`, each by a link of its own and a route to
	// its address, or `bridge`.
	Design Design `json:"design"`
	// Permit are annotations of Calico's that pods may use on weft's own network beside those that all may:
	// `ipAddrsNoIpam`, `floatingIPs`, `allowedSourcePrefixes`. Whoever may make a pod can then take addresses that are
	// others'.
	Permit []string `json:"permit"`
	// PermitPaths are the files and directories of the node that a NetworkAttachmentDefinition of Kubernetes may name, and
	// what is below them, by `dataDir`, `resolvConf`, `subnetFile`, `configuration_path` and `daemonSocketPath`: root
	// reads, writes and speaks to these. addressDir is permitted besides; `/` is all. Configurations of the node's own
	// directories may name any.
	PermitPaths []string `json:"permitPaths"`
	// PodAddresses are the prefixes, outside of the network's own, of which pods may bring addresses along by
	// `ipAddrsNoIpam` and `floatingIPs` that all nodes lead to; none: only the pod's own node does. All nodes are to have
	// the same.
	PodAddresses []netip.Prefix `json:"podAddresses"`
	// Addresses says what pods are numbered from: `podCIDRs`, the prefix of their node, or `pools`, blocks that nodes take
	// from pools of the whole cluster; empty is `pools` where Pools names any.
	Addresses Addresses `json:"addresses"`
	// Pools are pools of addresses for the pods of the whole cluster.
	Pools []Pool `json:"pools"`
	// PodCIDRs are the prefixes of this node's pods, at most one a family; none: those of the Node object.
	PodCIDRs []netip.Prefix `json:"podCIDRs"`
	// ClusterCIDRs are the prefixes that all nodes' pods are in. What goes from a pod to anywhere else has the node's
	// address when Masquerade is set; none: the pods' addresses are never hidden.
	ClusterCIDRs []netip.Prefix `json:"clusterCIDRs"`
	// Interface is the interface to the other nodes: `auto` is the one that has the node's own address (what it has
	// published, else its InternalIP), a name is that one. The others learn its address from what the node publishes on
	// Kubernetes.
	Interface string `json:"interface"`
	// MTU of the pods' interfaces, in bytes; 0 is what fits: with `vxlan` that of the interface to the other nodes less 50
	// bytes, 70 where pods have IPv6; with `udp` less 28 or 48, with `ipip` less 20, with `wireguard` less 80; else that
	// of a new link, 1500.
	MTU int `json:"mtu"`
	// MTUFile is a file that says the MTU of the pods' interfaces, written for plugins of others: Calico's with `"mtu": 0`
	// reads /var/lib/calico/mtu. Empty: none is written.
	MTUFile string `json:"mtuFile"`
	// Encapsulation is how packets get from node to node: `host-gw`, routes without encapsulation, for nodes on one
	// network; `vxlan`; `udp`, flannel's, carried by the agent itself; `ipip`, IPv4 alone; or `wireguard`, encrypted. A
	// node that says of itself that it is reached in another one of these ways is reached in that one.
	Encapsulation string `json:"encapsulation"`
	// VNI is the number of the VXLAN, 1 to 16777215.
	VNI int `json:"vni"`
	// VxlanPort is the UDP port of the VXLAN.
	VxlanPort int `json:"vxlanPort"`
	// VxlanGBP carries the sender's mark in the VXLAN as a group policy tag.
	VxlanGBP bool `json:"vxlanGBP"`
	// VxlanLearning has the VXLAN note who sent what from where. The agent tells it anyway.
	VxlanLearning bool `json:"vxlanLearning"`
	// UnderlayMTU is the largest packet between nodes, in bytes, for `vxlan` and `wireguard`; 0 is what the interface to
	// the other nodes takes.
	UnderlayMTU int `json:"underlayMTU"`
	// DirectRouting has nodes on one network reach each other without `vxlan` or `ipip`.
	DirectRouting bool `json:"directRouting"`
	// UDPPort is the port of `udp`.
	UDPPort int `json:"udpPort"`
	// WireguardPort is the UDP port of `wireguard`.
	WireguardPort int `json:"wireguardPort"`
	// WireguardPortV6 is that of its device for IPv6.
	WireguardPortV6 int `json:"wireguardPortV6"`
	// WireguardKeyFile is the file of the node's private key; it is made when it is missing.
	WireguardKeyFile string `json:"wireguardKeyFile"`
	// WireguardPSKFile is the file of a key that all nodes share; empty: there is none.
	WireguardPSKFile string `json:"wireguardPSKFile"`
	// WireguardKeepalive is how often a node hears of this one though there is nothing to say; 0 is never.
	WireguardKeepalive Duration `json:"wireguardKeepalive"`
	// WireguardMode is `separate`, a device for each family, or `ipv4`, `ipv6` or `auto`: one device, whose packets travel
	// over that family.
	WireguardMode string `json:"wireguardMode"`
	// Masquerade hides the pods behind the node's address on their way out of ClusterCIDRs.
	Masquerade bool `json:"masquerade"`
	// NonMasqueradeCIDRs are further destinations that see the pods' own addresses. Packets from there are accepted from
	// tunnels, too.
	NonMasqueradeCIDRs []netip.Prefix `json:"nonMasqueradeCIDRs"`
	// MasqAgentConfig is the path of a configuration of ip-masq-agent (`nonMasqueradeCIDRs`, `masqLinkLocal`,
	// `masqLinkLocalIPv6`, `resyncInterval`), whose exceptions count too and are followed; while there is no such file,
	// nothing but link-local destinations is excepted.
	MasqAgentConfig string `json:"masqAgentConfig"`
	// MasqueradeRandom takes random ports for hidden connections, so that two that begin at once do not want the same one.
	MasqueradeRandom bool `json:"masqueradeRandom"`
	// SourceGuard drops what a pod sends in the name of another: with a MAC or an address, in ARP and neighbor discovery,
	// too, that is not its own. False trusts all pods of weft's own network in the design `bridge`; routed pods are always
	// guarded. Other networks have the key `guard` of the plugin bridge.
	SourceGuard bool `json:"sourceGuard"`
	// Blackhole refuses packets to addresses of the node's own PodCIDRs that no pod has, instead of sending them
	// elsewhere.
	Blackhole bool `json:"blackhole"`
}

// Flannel is what weft has in common with the nodes of a flannel cluster. NetConf, CNIConf and SubnetFile are for
// network.mode `flannel` alone.
type Flannel struct {
	// Publish has an agent in Kubernetes say in its Node's annotations how the node is reached, as flannel does, and that
	// its network is available; nodes of flannel and of weft reach each other by that. Without Kubernetes it has an agent
	// write into its Node's manifest what others cannot know otherwise: keys of wireguard, VtepMACs. What other nodes say
	// is read in any case.
	Publish bool `json:"publish"`
	// AnnotationPrefix is what these annotations begin with: flannel's `--kube-annotation-prefix`.
	AnnotationPrefix string `json:"annotationPrefix"`
	// NetConf is flannel's own configuration of the network, the key `net-conf.json` of the ConfigMap: it says the prefix
	// that all nodes' pods are in, and the back end with its keys, in the place of Network's.
	NetConf string `json:"netConf"`
	// CNIConf is the key `cni-conf.json` of the ConfigMap. It is put into install.confDir as `10-flannel.conflist`, as
	// flannel does it, and the agent's form of it before that; where the file is missing, that is made of what lies there.
	CNIConf string `json:"cniConf"`
	// SubnetFile is written for the plugin `flannel`.
	SubnetFile string `json:"subnetFile"`
}

// Multus holds Multus' keys for network.mode `multus`. They are written into 00-multus.conf; an empty key is as Multus
// has it.
type Multus struct {
	// NamespaceIsolation keeps pods from using networks of other namespaces.
	NamespaceIsolation bool `json:"namespaceIsolation"`
	// GlobalNamespaces are namespaces whose networks every pod may use; `default` always is one.
	GlobalNamespaces []string `json:"globalNamespaces"`
	// SystemNamespaces are those whose pods get no DefaultNetworks; empty is `kube-system`.
	SystemNamespaces []string `json:"systemNamespaces"`
	// Namespace is where the networks of DefaultNetworks are looked for; empty is `kube-system`.
	Namespace string `json:"namespace"`
	// DefaultNetworks are further networks for every pod.
	DefaultNetworks []string `json:"defaultNetworks"`
	// ReadinessIndicatorFile is a file that the cluster's network writes when it is ready; pods wait for it.
	ReadinessIndicatorFile string `json:"readinessIndicatorFile"`
	// NetworkDir holds the configurations of networks whose objects have none; empty is `/etc/cni/multus/net.d`.
	NetworkDir string `json:"networkDir"`
}

// Policy is about NetworkPolicy.
type Policy struct {
	// Mode is what is done about NetworkPolicy, ClusterNetworkPolicy and MultiNetworkPolicy objects: `enforce` has them be
	// obeyed, `none` does nothing about them, `auto` is `enforce` with network.mode `cluster` and `none`, where no other
	// vendor does it.
	Mode string `json:"mode"`
	// Established is what becomes of connections that a changed policy does not allow any more: `cut` ends them, `keep`
	// lets them go on.
	Established string `json:"established"`
	// Log is which packets are logged with the names of the policies that decided: `denied`, at most 10 in a second of
	// each policy, or `none`.
	Log string `json:"log"`
	// LogGroup is the group of the kernel's nflog by which they come; another program must not listen to it.
	LogGroup int `json:"logGroup"`
}

// VirtualMachines are about pods in which machines run (KubeVirt's).
type VirtualMachines struct {
	// KeepAddresses says whether a machine's addresses and MAC stay with it, whichever pod it runs in: `possible`, where
	// IPAM can do that; `always`, else the pod does not start; `never`. Its annotation `weft.dev/keep-vm-address` comes
	// before ([ipam.md](ipam.md#virtual-machines)).
	KeepAddresses string `json:"keepAddresses"`
}

// Runtime is the container runtime's side.
type Runtime struct {
	// Endpoint is the runtime's CRI socket, as `unix:///run/containerd/containerd.sock`; `auto` takes the first one that
	// is there, containerd's or CRI-O's; empty: sandboxes are not listed and the agent collects nothing.
	Endpoint string `json:"endpoint"`
	// GCInterval is how often the attachments are compared with the runtime's list of sandboxes.
	GCInterval Duration `json:"gcInterval"`
}

// Install says where the runtime's directories are, as the agent sees them.
type Install struct {
	// ConfDir is the runtime's configuration directory. It is needed by the modes `cluster` and `multus`, and made when it
	// is missing.
	ConfDir string `json:"confDir"`
	// BinDir is the runtime's plugin directory; `weft doctor` looks there for what the runtime will execute.
	BinDir string `json:"binDir"`
	// HostRoot is where the agent sees the node's file system, when it runs in a container: other vendors' plugins are
	// executed there, with the node's own programs.
	HostRoot string `json:"hostRoot"`
}

// Metrics are for Prometheus.
type Metrics struct {
	// Address is where `/metrics`, `/healthz`, `/readyz` and `/loglevel` are served, as `127.0.0.1:9119` or `:9119`; empty
	// is nowhere. The log level is changed, and `/attachments` and `/addresses` are told, on the node itself alone.
	Address string `json:"address"`
}

// Duration is a time in Go's notation, as 5m or 30s.
type Duration time.Duration

// UnmarshalText reads "5m".
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// MarshalText writes "5m0s".
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Default is the configuration of an agent without a file.
func Default() Config {
	return Config{
		Socket: "/run/weft/agent.sock", StateDir: "/run/weft/agent", AddressDir: "/var/lib/cni/networks",
		Etcd: Etcd{Prefix: "/weft"},
		Network: Network{
			Mode: ModeNone, Name: "weft", Design: DesignRouted, Interface: "auto", Encapsulation: "host-gw", VNI: 1,
			VxlanPort: 8472,
			UDPPort:   8285, WireguardPort: 51820, WireguardPortV6: 51821, WireguardKeyFile: "/run/flannel/wgkey",
			WireguardMode:    "separate",
			MasqueradeRandom: true, SourceGuard: true,
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
		VirtualMachines: VirtualMachines{KeepAddresses: KeepPossible},
		Runtime:         Runtime{GCInterval: Duration(5 * time.Minute)},
	}
}
