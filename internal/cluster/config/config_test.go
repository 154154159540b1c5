// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/model"
)

const whole = `
# as a ConfigMap has it
node: n1
socket: /run/weft/a.sock
stateDir: /var/lib/weft
readyFile: /run/weft/ready
logLevel: debug
kubernetes: {inCluster: true, server: "https://10.0.0.1:6443"}
network:
  mode: cluster
  name: pods
  design: routed
  addresses: podCIDRs
  podCIDRs: [10.244.1.0/24, "fd00:1::/64"]
  clusterCIDRs: [10.244.0.0/16, "fd00::/16"]
  interface: auto
  mtu: 1400
  encapsulation: vxlan
  vni: 7
  vxlanPort: 4789
  vxlanGBP: true
  vxlanLearning: true
  underlayMTU: 1480
  directRouting: true
  udpPort: 8286
  wireguardPort: 51822
  wireguardPortV6: 51823
  wireguardKeyFile: /etc/weft/wg
  wireguardPSKFile: /etc/weft/psk
  wireguardKeepalive: 25s
  wireguardMode: auto
  masquerade: true
  nonMasqueradeCIDRs: [10.9.0.0/16]
  masqAgentConfig: /etc/config/ip-masq-agent
  masqueradeRandom: false
  fastPath: ebpf
  blackhole: true
etcd: {prefix: /hosts}
bgp: {socket: /run/weft/bgp.sock, secretNamespace: network, secretInterval: 1m}
loadBalancer: {assignIPs: RequestedServicesOnly, announce: false}
flannel: {publish: false, annotationPrefix: example.org/net, netConf: /a/n.json, cniConf: /a/c.json, subnetFile: /a/s.env}
policy: {mode: none, established: keep, log: denied, logGroup: 7}
observe: {level: denied, file: {path: /f, maxMegabytes: 1, keep: 2}, ipfix: {address: "udp://c", enterprise: 9}, otlp: {url: "http://c", headersFile: /h}}
virtualMachines: {keepAddresses: always}
runtime: {endpoint: auto, gcInterval: 1m}
install: {confDir: /etc/cni/net.d, binDir: /opt/cni/bin}
metrics: {address: ":9119", peers: all}
`

func TestParse(t *testing.T) {
	want := Config{
		Node: "n1", Socket: "/run/weft/a.sock", StateDir: "/var/lib/weft", AddressDir: "/var/lib/cni/networks",
		ReadyFile: "/run/weft/ready", LogLevel: slog.LevelDebug,
		Kubernetes: Kubernetes{InCluster: true, Server: "https://10.0.0.1:6443"},
		Etcd:       Etcd{Prefix: "/hosts"},
		Network: Network{
			PermitPaths: Default().Network.PermitPaths,
			Mode:        ModeCluster, Name: "pods", Design: DesignRouted, Addresses: AddressesPodCIDRs, Interface: "auto",
			MTU: 1400, Encapsulation: "vxlan", VNI: 7, VXLANPort: 4789, DirectRouting: true, Masquerade: true,
			VXLANGBP: true, VXLANLearning: true, UnderlayMTU: 1480, UDPPort: 8286, WireguardPort: 51822, WireguardPortV6: 51823,
			WireguardKeyFile: "/etc/weft/wg",
			WireguardPSKFile: "/etc/weft/psk", WireguardKeepalive: Duration(25 * time.Second), WireguardMode: "auto",
			NonMasqueradeCIDRs: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")},
			MasqAgentConfig:    "/etc/config/ip-masq-agent", SourceGuard: true, FastPath: FastPathEBPF, Blackhole: true,
			PodCIDRs:     []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:1::/64")},
			ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00::/16")},
		},
		BGP:          BGP{Socket: "/run/weft/bgp.sock", SecretNamespace: "network", SecretInterval: Duration(time.Minute)},
		LoadBalancer: LoadBalancer{AssignIPs: "RequestedServicesOnly"},
		Flannel: Flannel{
			AnnotationPrefix: "example.org/net", NetConf: "/a/n.json", CNIConf: "/a/c.json", SubnetFile: "/a/s.env",
		},
		Policy: Policy{Mode: "none", Established: "keep", Log: "denied", LogGroup: 7},
		Observe: Observe{
			Level: "denied", File: ObserveFile{Path: "/f", MaxMegabytes: 1, Keep: 2},
			IPFIX: ObserveIPFIX{Address: "udp://c", Enterprise: 9}, OTLP: ObserveOTLP{URL: "http://c", HeadersFile: "/h"},
		},
		VirtualMachines: VirtualMachines{KeepAddresses: KeepAlways},
		Runtime:         Runtime{Endpoint: "auto", GCInterval: Duration(time.Minute)},
		Install:         Install{ConfDir: "/etc/cni/net.d", BinDir: "/opt/cni/bin"}, Metrics: Metrics{Address: ":9119", Peers: PeersAll},
	}
	prefixes := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	asJSON, err := yaml.YAMLToJSON([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	for form, text := range map[string][]byte{"YAML": []byte(whole), "JSON": asJSON, "as it is written": again} {
		got, err := Parse(text)
		if diff := cmp.Diff(want, got, prefixes); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", form, err, diff)
		}
	}
	for _, text := range []string{"", "{}", "# nothing\n", "node:\n", "null"} {
		if got, err := Parse([]byte(text)); err != nil || !cmp.Equal(got, Default(), prefixes) {
			t.Errorf("%q: %v, %+v", text, err, got)
		}
	}
}

// TestBadInput: every error names the key and its value.
func TestBadInput(t *testing.T) {
	for text, want := range map[string]string{
		"[]":                            "the file is a list, want object",
		"nodes: x":                      "nodes: unknown key (the keys here are node, socket, stateDir, storeDir, addressDir, readyFile, logLevel, kubernetes, etcd, network, bgp, loadBalancer, flannel, multus, policy, observe, virtualMachines, runtime, install, metrics)",
		"network: {MTU: 1400}":          "network.MTU: unknown key (the keys here are mode, name, design, permit, permitPaths, podAddresses, addresses, pools, podCIDRs, clusterCIDRs, interface, mtu, mtuFile, podIPAnnotations, encapsulation, vni, vxlanPort, vxlanGBP, vxlanLearning, underlayMTU, directRouting, udpPort, wireguardPort, wireguardPortV6, wireguardKeyFile, wireguardPSKFile, wireguardKeepalive, wireguardMode, masquerade, nonMasqueradeCIDRs, masqAgentConfig, masqueradeRandom, sourceGuard, dadTimeout, fastPath, blackhole)",
		"network: {permitPaths: [var]}": `network.permitPaths[0] "var" is no absolute path (write it from the root)`,
		"network: {design: mesh}":       `network.design "mesh" is not known (routed or bridge)`,
		"network: {mode: cluster, dadTimeout: 200ms}": "network.dadTimeout 200ms: mode cluster, design routed: a routed pod has no other hosts on its link, " +
			"and other networks have the key in their own configuration (leave it out, or set it in the configuration of the network whose pods share a link with other hosts)",
		"network: {mode: cluster, design: bridge, dadTimeout: 11s}":                                                                         "network.dadTimeout 11s is not between 1ms and 10s (for example 200ms; 0 disables it)",
		"network: {addresses: all}":                                                                                                         `network.addresses "all" is not known (podCIDRs or pools)`,
		"network: {addresses: podCIDRs, pools: [{cidr: 10.1.0.0/16}]}":                                                                      `network.addresses "podCIDRs" and network.pools contradict each other (leave one out)`,
		"network: {design: bridge, pools: [{cidr: 10.1.0.0/16}]}":                                                                           `network.design "bridge" does not support addresses from pools (a bridge needs one prefix per node: use design routed, or network.addresses podCIDRs)`,
		"network: {podCIDRs: [10.1.0.0/24], addresses: pools}":                                                                              `network.podCIDRs and addresses from pools contradict each other (leave one out)`,
		"{network: {mode: multus, addresses: pools}, install: {confDir: /c}}":                                                               `network.mode "multus" has no pools (leave network.pools and network.addresses out)`,
		"network: {pools: [{name: a}]}":                                                                                                     "network.pools[0].cidr is missing (as 10.244.0.0/16)",
		"network: {pools: [{cidr: 10.1.0.1/16}]}":                                                                                           "network.pools[0].cidr 10.1.0.1/16 has bits beyond its length (did you mean 10.1.0.0/16?)",
		"network: {pools: [{cidr: 10.1.0.0}]}":                                                                                              `network.pools[0].cidr "10.1.0.0" is not a prefix, as 10.244.0.0/16`,
		"network: {pools: [{cidr: 10.1.0.0/16, size: 26}]}":                                                                                 "network.pools[0].size: unknown key (the keys here are name, cidr, blockSize, encapsulation, encapsulate, natOutgoing, nodeSelector, namespaceSelector, assignmentMode)",
		"network: {pools: [{cidr: 10.1.0.0/16}, {cidr: 10.1.8.0/24}]}":                                                                      "network.pools[1].cidr 10.1.8.0/24 overlaps 10.1.0.0/16 (give each range once)",
		"network: {pools: [{name: a, cidr: 10.1.0.0/16}, {name: a, cidr: 10.2.0.0/16}]}":                                                    `network.pools[1].name "a" is another pool's (give each pool a name of its own)`,
		"network: {pools: [{name: A, cidr: 10.1.0.0/16}]}":                                                                                  `network.pools[0].name "A" cannot be used (lower case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253 of them)`,
		"network: {pools: [{cidr: 10.1.0.0/16, blockSize: 33}]}":                                                                            "network.pools[0].blockSize 33 is not between 24 and 32 (leave it out, and it fits the pool)",
		"network: {pools: [{cidr: 10.1.0.0/28, blockSize: 26}]}":                                                                            "network.pools[0].blockSize 26 is not between 28 and 32 (leave it out, and it fits the pool)",
		"network: {pools: [{cidr: 10.1.0.0/16, encapsulation: gre}]}":                                                                       `network.pools[0].encapsulation "gre" is not known (none or vxlan or ipip)`,
		"network: {pools: [{cidr: 10.1.0.0/16, encapsulation: vxlan, encapsulate: Never}]}":                                                 `network.pools[0].encapsulate "Never" is not known (Always or CrossSubnet)`,
		"network: {pools: [{cidr: 10.1.0.0/16, encapsulate: Always}]}":                                                                      `network.pools[0].encapsulate has no effect with encapsulation "" (leave it out, or name vxlan or ipip)`,
		"install: {confDir: /c}\nnetwork: {mode: cluster, podAddresses: [172.16.0.0/24]}":                                                   "network.podAddresses has no effect: pods may not use such addresses (add ipAddrsNoIpam or floatingIPs to network.permit)",
		"install: {confDir: /c}\nnetwork: {mode: cluster, permit: [floatingIPs], podAddresses: [172.16.0.1/24]}":                            "network.podAddresses[0] 172.16.0.1/24 has bits beyond its length (did you mean 172.16.0.0/24?)",
		"install: {confDir: /c}\nnetwork: {mode: cluster, permit: [floatingIPs], podAddresses: [10.0.0.0/8], pools: [{cidr: 10.7.0.0/16}]}": "network.podAddresses[0] 10.0.0.0/8 overlaps 10.7.0.0/16, a prefix of the network (a prefix outside of the network's own)",
		"install: {confDir: /c}\nnetwork: {mode: cluster, permit: [floatingIPs], podAddresses: [\"fe80::/64\"]}":                            "network.podAddresses[0] fe80::/64 has no addresses of pods (a unicast prefix)",
		"install: {confDir: /c}\nnetwork: {mode: multus, permit: [floatingIPs], podAddresses: [172.16.0.0/24]}":                             `network.podAddresses has no effect with network.mode "multus" (leave it out: the other vendor routes to pods)`,
		"network: {permit: [floatingIPs, hwAddr]}":                                                                                          `network.permit[1] "hwAddr" is not known (ipAddrsNoIpam, floatingIPs or allowedSourcePrefixes)`,
		"network: {pools: [{cidr: 10.1.0.0/16, assignmentMode: Never}]}":                                                                    `network.pools[0].assignmentMode "Never" is not known (Automatic or Manual)`,
		`network: {pools: [{cidr: "fd00::/64", encapsulation: ipip}]}`:                                                                      `network.pools[0].encapsulation "ipip" carries IPv4 only, and the pool is fd00::/64 (use vxlan)`,
		`network: {pools: [{cidr: 10.1.0.0/16, nodeSelector: "zone =="}]}`:                                                                  `network.pools[0].nodeSelector "zone ==": selector "zone ==", character 8: the end is not a quoted value (put quotation marks around the value)`,
		"network: {mtu: large}":           "network.mtu is a string, want number",
		"bgp: {socket: bgp.sock}":         `bgp.socket "bgp.sock" is no absolute path of at most 102 bytes (for example /run/weft/bgp.sock)`,
		"loadBalancer: {assignIPs: Some}": `loadBalancer.assignIPs "Some" is not known (AllServices or RequestedServicesOnly)`,
		"network: {encapsulation: bgp}":   `network.encapsulation "bgp" needs bgp.socket (set bgp.socket to that of weft-bgp)`,
		"network: {mtuFile: mtu}":         `network.mtuFile "mtu" is no absolute path (for example /var/lib/calico/mtu)`,
		"{network: {mode: policy}, policy: {mode: none}, install: {confDir: /c}}": `policy.mode "none" leaves network.mode "policy" nothing to do (set policy.mode to auto)`,
		"{network: {mode: policy, mtu: 1400}, install: {confDir: /c}}":            `network.podCIDRs, mtu, mtuFile and masquerade have no effect with network.mode "policy" (leave it out: the other vendor's configuration says it)`,
		"{network: {mode: policy, addresses: pools}, install: {confDir: /c}}":     `network.mode "policy" has no pools (leave network.pools and network.addresses out)`,
		"network: {mode: multus, mtuFile: /m}":                                    `network.podCIDRs, mtu, mtuFile and masquerade have no effect with network.mode "multus" (leave it out: the other vendor's configuration says it)`,
		"network: {mtu: 1.5}":                                                     `network.mtu "1.5" is not a whole number`,
		"network: {mtu: 9999999999999999999}":                                     `network.mtu "9999999999999999999" is not a whole number`,
		"network: {mtu: 67}":                                                      "network.mtu 67 is not between 68 and 65535 (leave it out, and it is that of the node's interface)",
		`network: {mtu: 1279, podCIDRs: ["fd00::/64"]}`:                           "network.mtu 1279 is not between 1280 and 65535 (leave it out, and it is that of the node's interface)",
		"network: 7":                                                                                   "network is a number, want object",
		"network: {mode: overlay}":                                                                     `network.mode "overlay" is not known (none, cluster, flannel, multus or policy)`,
		"network: {mode: cluster}":                                                                     `install.confDir is missing, and network.mode "cluster" writes there (often /etc/cni/net.d)`,
		"network: {name: a/b}":                                                                         `network.name "a/b" cannot be used (letters, digits, '_', '.' and '-')`,
		"network: {interface: eth0/1}":                                                                 `network.interface "eth0/1" is no name of a link (auto, or the name of one of the node's links)`,
		"network: {encapsulation: geneve}":                                                             `network.encapsulation "geneve" is not supported (host-gw, vxlan, udp, ipip, wireguard or bgp; a backend of your own is named DOMAIN/NAME)`,
		"network: {encapsulation: ipsec}":                                                              `network.encapsulation "ipsec" is not supported (use wireguard)`,
		"network: {encapsulation: tencent-vpc}":                                                        `network.encapsulation "tencent-vpc" is not supported (use wireguard)`,
		"network: {encapsulation: udp, udpPort: 65536}":                                                "network.udpPort 65536 is not between 1 and 65535 (flannel's is 8285)",
		"network: {encapsulation: udp, directRouting: true}":                                           `network.directRouting has no effect with network.encapsulation "udp" (leave it out)`,
		"network: {encapsulation: wireguard, wireguardPort: 0}":                                        "network.wireguardPort 0 is not between 1 and 65535 (WireGuard's is 51820)",
		"network: {wireguardMode: both}":                                                               `network.wireguardMode "both" is not known (separate, auto, ipv4 or ipv6)`,
		"network: {wireguardKeepalive: 500ms}":                                                         "network.wireguardKeepalive 500ms is not a number of seconds up to 65535 (as 25s; 0s is never)",
		"network: {wireguardKeyFile: key}":                                                             `network.wireguardKeyFile "key" is no absolute path (write the whole path)`,
		"network: {underlayMTU: 100}":                                                                  "network.underlayMTU 100 is not between 576 and 65535 (leave it out, and it is that of the interface to the other nodes)",
		"network: {nonMasqueradeCIDRs: [10.0.0.0/8]}":                                                  "network.nonMasqueradeCIDRs and masqAgentConfig have no effect without network.masquerade (set network.masquerade, or leave them out)",
		"network: {encapsulation: vxlan, vni: 0}":                                                      "network.vni 0 is not between 1 and 16777215 (flannel's is 1)",
		"network: {encapsulation: vxlan, vni: 16777216}":                                               "network.vni 16777216 is not between 1 and 16777215 (flannel's is 1)",
		"network: {encapsulation: host-gw, vni: 16777216}":                                             "network.vni 16777216 is not between 1 and 16777215 (flannel's is 1)",
		"network: {encapsulation: vxlan, vxlanPort: 0}":                                                "network.vxlanPort 0 is not between 1 and 65535 (the kernel's and flannel's is 8472, the registered one 4789)",
		"network: {directRouting: true}":                                                               `network.directRouting has no effect with network.encapsulation "host-gw" (leave it out: host-gw is direct)`,
		"network: {masquerade: true}":                                                                  "network.masquerade needs network.clusterCIDRs, which is empty (name the prefixes that all nodes' pods are in)",
		"network: {masquerade: maybe}":                                                                 "network.masquerade is a string, want true or false",
		"network: {podCIDRs: 10.0.0.0/8}":                                                              "network.podCIDRs is a string, want list",
		"network: {podCIDRs: [10.0.0.0]}":                                                              `network.podCIDRs[0] "10.0.0.0" is not a prefix, as 10.244.0.0/16`,
		"network: {podCIDRs: [null]}":                                                                  "network.podCIDRs[0] is null, want string",
		"network: {podCIDRs: [10.0.0.1/24]}":                                                           "network.podCIDRs[0] 10.0.0.1/24 has bits beyond its length (did you mean 10.0.0.0/24?)",
		"network: {podCIDRs: [10.0.0.0/24, 10.1.0.0/24]}":                                              "network.podCIDRs[1] 10.1.0.0/24: there is 10.0.0.0/24 already (at most one a family)",
		"network: {clusterCIDRs: [10.0.0.0/8, 10.1.0.0/16]}":                                           "network.clusterCIDRs[1] 10.1.0.0/16 overlaps 10.0.0.0/8 (give each range once)",
		"network: {podCIDRs: [10.2.0.0/24], clusterCIDRs: [10.1.0.0/16]}":                              "network.podCIDRs[0] 10.2.0.0/24 is in none of network.clusterCIDRs (add the range to network.clusterCIDRs)",
		"multus: {namespaceIsolation: true}":                                                           `multus has no effect with network.mode "none" (set network.mode to multus, or leave multus out)`,
		"{network: {mode: multus, mtu: 1400}, install: {confDir: /c}}":                                 `network.podCIDRs, mtu, mtuFile and masquerade have no effect with network.mode "multus" (leave it out: the other vendor's configuration says it)`,
		"{network: {mode: multus}, install: {confDir: /c}, multus: {logLevel: loud}}":                  `multus.logLevel "loud" is not known (panic, error, verbose or debug)`,
		"{network: {mode: multus}, install: {confDir: /c}, multus: {logFile: /m}}":                     `multus.logFile "/m": without a level nothing is logged (set multus.logLevel, for example to verbose)`,
		"{network: {mode: multus}, install: {confDir: /c}, multus: {logFile: m, logLevel: debug}}":     `multus.logFile "m" is no absolute path (write it from the root)`,
		"multus: {globalNamespaces: [1]}":                                                              "multus.globalNamespaces[0] is a number, want string",
		"flannel: {annotationPrefix: flannel}":                                                         `flannel.annotationPrefix "flannel" begins no annotation (as flannel.alpha.coreos.com)`,
		"{network: {mode: flannel}, install: {confDir: /c}, storeDir: /s, flannel: {netConf: n.json}}": `flannel.netConf "n.json" is no absolute path (leave it out, and the default counts)`,
		"{network: {mode: flannel, clusterCIDRs: [10.0.0.0/8]}, install: {confDir: /c}, storeDir: /s}": `network.clusterCIDRs has no effect with network.mode "flannel" (leave it out: flannel.netConf says it)`,
		"policy: {mode: strict}":                                                                       `policy.mode "strict" is not known (auto, enforce or none)`,
		"policy: {established: drop}":                                                                  `policy.established "drop" is not known (cut or keep)`,
		"policy: {log: all}":                                                                           `policy.log "all" is not known (denied or none)`,
		"virtualMachines: {keepAddresses: yes please}":                                                 `virtualMachines.keepAddresses "yes please" is not known (possible, always or never)`,
		"observe: {file: {path: /f}}":                                                                  `observe.level is off, and observe.file.path "/f" would receive nothing (denied or flows, or leave out observe.file.path)`,
		"network: {fastPath: xdp}":                                                                     `network.fastPath "xdp" is not known (off, auto, ebpf or flowtable)`,
		"network: {fastPath: true}":                                                                    "network.fastPath is true or false, want string",
		"observe: {level: flows, file: {path: f}}":                                                     `observe.file.path: path "f" is not absolute (for example /var/log/weft/flows.json)`,
		"observe: {level: flows, file: {path: /f, maxMegabytes: 0}}":                                   `observe.file.path: observe.file.maxMegabytes 0 is no size (1 or more)`,
		"observe: {level: flows, ipfix: {address: c}}":                                                 `observe.ipfix.address: address "c" is neither udp://HOST:PORT nor tcp://HOST:PORT (for example udp://collector.observability:4739)`,
		"observe: {level: flows, otlp: {url: c}}":                                                      `observe.otlp.url: url "c" is not a URL of http or https (for example http://collector.observability:4318)`,
		"observe: {listen: x}":                                                                         `observe.listen "x" is no address with a port (as :9443 or 10.0.0.1:9443)`,
		"observe: {listen: 'localhost:9443'}":                                                          `observe.listen "localhost:9443": "localhost" is no address (as :9443 or 10.0.0.1:9443)`,
		"observe: {level: all}":                                                                        `observe.level "all" is not known (off, denied or flows)`,
		"policy: {logGroup: 70000}":                                                                    `policy.logGroup 70000 is no group of nflog (1 to 65535)`,
		"node: N_1":                                                                                    `node "N_1" cannot be used (lower case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253 of them)`,
		"node: 7":                                                                                      "node is a number, want string",
		"socket: a.sock":                                                                               `socket "a.sock" is no absolute path of at most 102 bytes (choose another one, for example /run/weft/agent.sock)`,
		`stateDir: ""`:                                                                                 "stateDir is empty (leave it out, and the default counts)",
		"logLevel: loud":                                                                               `logLevel "loud" is not one of DEBUG, INFO, WARN, ERROR`,
		"kubernetes: {inCluster: true, kubeconfig: /k}":                                                `kubernetes.inCluster and kubernetes.kubeconfig "/k" contradict each other (leave one out)`,
		"{storeDir: /s, etcd: {endpoints: [http://a:1]}}":                                              `etcd.endpoints ["http://a:1"] and storeDir or kubernetes contradict each other (the cluster's objects are in one place: leave one out)`,
		"{storeDir: /s, kubernetes: {inCluster: true}}":                                                `storeDir "/s" and kubernetes contradict each other (the cluster's objects are in one place: leave one out)`,
		"kubernetes: {inCluster: true, server: 10.0.0.1}":                                              `kubernetes.server "10.0.0.1" is no URL of a server (as https://10.0.0.1:6443)`,
		"kubernetes: {server: https://10.0.0.1}":                                                       `kubernetes.server "https://10.0.0.1": there is no credential to go there with (set kubernetes.inCluster or kubernetes.kubeconfig)`,
		"runtime: {endpoint: /run/x.sock}":                                                             `runtime.endpoint "/run/x.sock" is no socket (as unix:///run/containerd/containerd.sock, or auto)`,
		"bgp: {secretInterval: 10ms}":                                                                  "bgp.secretInterval 10ms is not from 1s to 1h0m0s (30s reads Secrets twice a minute)",
		"runtime: {gcInterval: soon}":                                                                  `runtime.gcInterval "soon" is not a time, as 5m`,
		"runtime: {gcInterval: 1s}":                                                                    "runtime.gcInterval 1s is less than 10s (a minute or more leaves the runtime in peace)",
		"runtime: {gcInterval: 60}":                                                                    "runtime.gcInterval is a number, want string",
		"metrics: {peers: some}":                                                                       `metrics.peers "some" is not known (choose none, auto or all)`,
		"metrics: {address: 9119}":                                                                     "metrics.address is a number, want string",
		`metrics: {address: "localhost:1"}`:                                                            `metrics.address "localhost:1": "localhost" is no address (as 127.0.0.1:9119 or :9119)`,
		`metrics: {address: ":0"}`:                                                                     `metrics.address ":0" is no address with a port (as 127.0.0.1:9119 or :9119)`,
		"node: a\nnode: b":                                                                             "it cannot be read: unmarshal errors:\n  line 2: key \"node\" already set in map (write it as YAML or JSON, each key once)",
		"node: [":                                                                                      "it cannot be read: line 1: did not find expected node content (write it as YAML or JSON, each key once)",
	} {
		_, err := Parse([]byte(text))
		if err == nil || err.Error() != want {
			t.Errorf("%s\n got: %v\nwant: %s", text, err, want)
		}
		var fault *model.Error
		if err != nil && !errors.As(err, &fault) {
			t.Errorf("%s: no code", text)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "weft.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("node: x")
	if c, err := Load(path); err != nil || c.Node != "x" {
		t.Errorf("%+v, %v", c, err)
	}
	write("network: {mtu: 1}")
	if _, err := Load(path); err == nil || err.Error() != "configuration "+path+
		": network.mtu 1 is not between 68 and 65535 (leave it out, and it is that of the node's interface)" {
		t.Errorf("%v", err)
	}
	write(strings.Repeat("#", maxSize+1))
	for _, bad := range []string{path, dir, filepath.Join(dir, "none"), "/dev/zero"} {
		if _, err := Load(bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"network":{"podCIDRs":["10.0.0.0/8"],"mtu":1e3}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse(b)
		var fault *model.Error
		switch {
		case err != nil && !errors.As(err, &fault):
			t.Errorf("%q: an error without a code: %v", b, err)
		case err == nil:
			text, err := json.Marshal(c)
			if err != nil {
				t.Fatalf("%q: %v", b, err)
			}
			if _, err := Parse(text); err != nil {
				t.Errorf("%q: its own form is refused: %v\n%s", b, err, text)
			}
		}
	})
}

// YAML reads off without quotes as false: it is off where a key has that value.
func TestOff(t *testing.T) {
	c, err := Parse([]byte("network: {fastPath: off}\nobserve: {level: off}"))
	if err != nil || c.Network.FastPath != FastPathOff || c.Observe.Level != "off" {
		t.Errorf("%q, %q, %v", c.Network.FastPath, c.Observe.Level, err)
	}
	if _, err := Parse([]byte("policy: {mode: off}")); err == nil {
		t.Error("a key has a value that it does not have")
	}
	for _, mode := range []string{FastPathAuto, FastPathFlowtable} {
		if c, err := Parse([]byte("network: {fastPath: " + mode + "}")); err != nil || c.Network.FastPath != mode {
			t.Errorf("%q, %v", c.Network.FastPath, err)
		}
	}
	c, err = Parse([]byte("network: {mode: multus, fastPath: ebpf}\ninstall: {confDir: /c}"))
	if err == nil {
		t.Errorf("the fast path of another vendor's links: %+v", c.Network)
	}
}
