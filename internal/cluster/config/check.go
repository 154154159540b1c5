// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/model"
)

// Minimum MTUs by RFC 791 and RFC 8200, and maximum values.
const (
	minMTU4 = 68
	minMTU6 = 1280
	maxMTU  = 65535
	maxVNI  = 1<<24 - 1
	maxPort = 65535
)

// minGCInterval bounds the load of the comparison with the runtime.
const minGCInterval = 10 * time.Second

// minSecretInterval bounds the load on the API server, maxSecretInterval how long a changed password is not in force.
const minSecretInterval, maxSecretInterval = time.Second, time.Hour

// Check validates the configuration.
func (c Config) Check() error {
	for _, check := range []func() error{
		c.checkNetwork, c.checkNode, c.checkKubernetes, c.checkFlannel, c.checkCIDRs, c.checkRest,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c Config) checkNode() error {
	if c.Node != "" {
		if err := model.CheckName("node", c.Node); err != nil {
			return err
		}
	}
	if !filepath.IsAbs(c.Socket) || len(c.Socket) > wire.MaxSocket {
		return invalid("choose another one, for example /run/weft/agent.sock",
			"socket %q is no absolute path of at most %d bytes", c.Socket, wire.MaxSocket)
	}
	if s := c.BGP.Socket; s != "" && (!filepath.IsAbs(s) || len(s) > wire.MaxSocket) {
		return invalid("for example /run/weft/bgp.sock",
			"bgp.socket %q is no absolute path of at most %d bytes", s, wire.MaxSocket)
	}
	if a := c.LoadBalancer.AssignIPs; a != "AllServices" && a != "RequestedServicesOnly" {
		return invalid("AllServices or RequestedServicesOnly", "loadBalancer.assignIPs %q is not known", a)
	}
	if c.Network.Encapsulation == "bgp" && c.BGP.Socket == "" {
		return invalid("set bgp.socket to that of weft-bgp", "network.encapsulation %q needs bgp.socket", c.Network.Encapsulation)
	}
	for _, p := range []struct {
		key, value string
		needed     bool
	}{
		{"stateDir", c.StateDir, true},
		{"storeDir", c.StoreDir, false},
		{"readyFile", c.ReadyFile, false},
		{"kubernetes.kubeconfig", c.Kubernetes.Kubeconfig, false},
		{"etcd.caFile", c.Etcd.CAFile, false},
		{"etcd.certFile", c.Etcd.CertFile, false},
		{"etcd.keyFile", c.Etcd.KeyFile, false},
		{"install.confDir", c.Install.ConfDir, c.Network.Mode != ModeNone},
		{"install.binDir", c.Install.BinDir, false},
	} {
		switch {
		case p.value == "" && p.needed && p.key == "install.confDir":
			return invalid("often /etc/cni/net.d", "install.confDir is missing, and network.mode %q writes there",
				c.Network.Mode)
		case p.value == "" && p.needed:
			return invalid("leave it out, and the default counts", "%s is empty", p.key)
		}
	}
	return nil
}

func (c Config) checkKubernetes() error {
	k := c.Kubernetes
	switch {
	case k.InCluster && k.Kubeconfig != "":
		return invalid("leave one out", "kubernetes.inCluster and kubernetes.kubeconfig %q contradict each other",
			k.Kubeconfig)
	case c.StoreDir != "" && (k.InCluster || k.Kubeconfig != ""):
		return invalid("the cluster's objects are in one place: leave one out",
			"storeDir %q and kubernetes contradict each other", c.StoreDir)
	case len(c.Etcd.Endpoints) > 0 && (c.StoreDir != "" || k.InCluster || k.Kubeconfig != ""):
		return invalid("the cluster's objects are in one place: leave one out",
			"etcd.endpoints %q and storeDir or kubernetes contradict each other", c.Etcd.Endpoints)
	}
	if k.Server == "" {
		return nil
	}
	u, err := url.Parse(k.Server)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return invalid("as https://10.0.0.1:6443", "kubernetes.server %q is no URL of a server", k.Server)
	}
	if !k.InCluster && k.Kubeconfig == "" {
		return invalid("set kubernetes.inCluster or kubernetes.kubeconfig",
			"kubernetes.server %q: there is no credential to go there with", k.Server)
	}
	return nil
}

func (c Config) checkFlannel() error {
	f := c.Flannel
	if _, err := flannel.KeysOf(f.AnnotationPrefix); err != nil {
		return invalid("as flannel.alpha.coreos.com", "flannel.annotationPrefix %q begins no annotation", f.AnnotationPrefix)
	}
	if c.Network.Mode != ModeFlannel {
		return nil
	}
	for _, p := range [][2]string{
		{"flannel.netConf", f.NetConf}, {"flannel.cniConf", f.CNIConf}, {"flannel.subnetFile", f.SubnetFile},
	} {
		if !filepath.IsAbs(p[1]) {
			return invalid("leave it out, and the default counts", "%s %q is no absolute path", p[0], p[1])
		}
	}
	return nil
}

func (c Config) checkNetwork() error {
	n := c.Network
	if !slices.Contains([]Mode{ModeNone, ModeCluster, ModeFlannel, ModeMultus, ModePolicy}, n.Mode) {
		return invalid("none, cluster, flannel, multus or policy", "network.mode %q is not known", n.Mode)
	}
	if n.Name == "" || strings.ContainsAny(n.Name, "/ \t\n") || len(n.Name) > 253 {
		return invalid("letters, digits, '_', '.' and '-'", "network.name %q cannot be used", n.Name)
	}
	if n.Interface == "" || len(n.Interface) > 15 || strings.ContainsAny(n.Interface, "/: \t\n") {
		return invalid("auto, or the name of one of the node's links",
			"network.interface %q is no name of a link", n.Interface)
	}
	if !slices.Contains([]string{FastPathOff, FastPathAuto, FastPathEBPF, FastPathFlowtable}, n.FastPath) {
		return invalid("off, auto, ebpf or flowtable", "network.fastPath %q is not known", n.FastPath)
	}
	if n.FastPath != FastPathOff && n.Mode.OtherVendor() {
		return invalid("leave it out: the pods' links are the other vendor's",
			"network.fastPath %q has no effect with network.mode %q", n.FastPath, n.Mode)
	}
	if err := n.checkEncapsulation(); err != nil {
		return err
	}
	if err := errors.Join(n.checkPermit(), n.checkDesign()); err != nil {
		return err
	}
	if err := errors.Join(c.Policy.check(), c.Observe.check(), c.VirtualMachines.check()); err != nil {
		return err
	}
	if err := c.checkMultus(); err != nil {
		return err
	}
	if err := n.checkMTU(); err != nil {
		return err
	}
	return n.checkMasquerade()
}

// checkMultus rejects settings without effect with another vendor's network, and settings for one if there is none.
func (c Config) checkMultus() error {
	n := c.Network
	if n.Mode != ModeMultus && !reflect.ValueOf(c.Multus).IsZero() {
		return invalid("set network.mode to multus, or leave multus out", "multus has no effect with network.mode %q", n.Mode)
	}
	if err := c.Multus.checkLog(); err != nil {
		return err
	}
	if n.Mode == ModePolicy && c.Policy.Mode == PolicyNone {
		return invalid("set policy.mode to auto", "policy.mode %q leaves network.mode %q nothing to do", c.Policy.Mode, n.Mode)
	}
	if n.Mode.OtherVendor() && (n.Masquerade || len(n.PodCIDRs) > 0 || n.MTU != 0 || n.MTUFile != "") {
		return invalid("leave it out: the other vendor's configuration says it",
			"network.podCIDRs, mtu, mtuFile and masquerade have no effect with network.mode %q", n.Mode)
	}
	if n.PodIPAnnotations && n.Mode.OtherVendor() {
		return invalid("leave it out: the other vendor's plugins publish the addresses",
			"network.podIPAnnotations has no effect with network.mode %q", n.Mode)
	}
	return nil
}

func (m Multus) checkLog() error {
	levels := []string{"panic", "error", "verbose", "debug"} // as in Multus
	switch {
	case m.LogLevel != "" && !slices.Contains(levels, strings.ToLower(m.LogLevel)):
		return invalid("panic, error, verbose or debug", "multus.logLevel %q is not known", m.LogLevel)
	case m.LogFile != "" && !filepath.IsAbs(m.LogFile):
		return invalid("write it from the root", "multus.logFile %q is no absolute path", m.LogFile)
	case m.LogFile != "" && m.LogLevel == "":
		return invalid("set multus.logLevel, for example to verbose", "multus.logFile %q: without a level nothing is logged",
			m.LogFile)
	}
	return nil
}

func (n Network) checkMTU() error {
	least := minMTU4
	if slices.ContainsFunc(slices.Concat(n.PodCIDRs, n.ClusterCIDRs), func(p netip.Prefix) bool {
		return p.Addr().Is6()
	}) {
		least = minMTU6
	}
	if n.MTUFile != "" && !filepath.IsAbs(n.MTUFile) {
		return invalid("for example /var/lib/calico/mtu", "network.mtuFile %q is no absolute path", n.MTUFile)
	}
	if n.MTU != 0 && (n.MTU < least || n.MTU > maxMTU) {
		return invalid("leave it out, and it is that of the node's interface", "network.mtu %d is not between %d and %d",
			n.MTU, least, maxMTU)
	}
	return nil
}

// checkMasquerade validates the prefixes of masquerading.
func (n Network) checkMasquerade() error {
	if n.Mode == ModeFlannel && len(n.ClusterCIDRs) > 0 {
		return invalid("leave it out: flannel.netConf says it",
			"network.clusterCIDRs has no effect with network.mode %q", n.Mode)
	}
	if !n.Masquerade && (len(n.NonMasqueradeCIDRs) > 0 || n.MasqAgentConfig != "") {
		return invalid("set network.masquerade, or leave them out",
			"network.nonMasqueradeCIDRs and masqAgentConfig have no effect without network.masquerade")
	}
	if n.Masquerade && len(n.ClusterCIDRs) == 0 && n.Mode != ModeFlannel {
		return invalid("name the prefixes that all nodes' pods are in",
			"network.masquerade needs network.clusterCIDRs, which is empty")
	}
	return nil
}

func (c Config) checkCIDRs() error {
	for _, list := range []struct {
		key     string
		all     []netip.Prefix
		oneEach bool
	}{
		{"network.podCIDRs", c.Network.PodCIDRs, true},
		{"network.clusterCIDRs", c.Network.ClusterCIDRs, false},
		{"network.nonMasqueradeCIDRs", c.Network.NonMasqueradeCIDRs, false},
		{"network.podAddresses", c.Network.PodAddresses, false},
	} {
		for i, p := range list.all {
			if p != p.Masked() {
				return invalid("did you mean "+p.Masked().String()+"?", "%s[%d] %s has bits beyond its length", list.key, i, p)
			}
			for _, q := range list.all[:i] {
				switch {
				case p.Overlaps(q):
					return invalid("give each range once", "%s[%d] %s overlaps %s", list.key, i, p, q)
				case list.oneEach && p.Addr().Is4() == q.Addr().Is4():
					return invalid("at most one a family", "%s[%d] %s: there is %s already", list.key, i, p, q)
				}
			}
		}
	}
	all := c.Network.ClusterCIDRs
	for i, p := range c.Network.PodCIDRs {
		inside := slices.ContainsFunc(all, func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) })
		if len(all) > 0 && !inside {
			return invalid("add the range to network.clusterCIDRs",
				"network.podCIDRs[%d] %s is in none of network.clusterCIDRs", i, p)
		}
	}
	return nil
}

func (c Config) checkRest() error {
	r := c.Runtime
	if path, unix := strings.CutPrefix(r.Endpoint, "unix://"); r.Endpoint != "" && r.Endpoint != "auto" &&
		(!unix || !filepath.IsAbs(path)) {
		return invalid("as unix:///run/containerd/containerd.sock, or auto", "runtime.endpoint %q is no socket", r.Endpoint)
	}
	if time.Duration(r.GCInterval) < minGCInterval {
		return invalid("a minute or more leaves the runtime in peace", "runtime.gcInterval %s is less than %s",
			time.Duration(r.GCInterval), minGCInterval)
	}
	if i := time.Duration(c.BGP.SecretInterval); i < minSecretInterval || i > maxSecretInterval {
		return invalid("30s reads Secrets twice a minute", "bgp.secretInterval %s is not from %s to %s", i, minSecretInterval, maxSecretInterval)
	}
	if p := c.Metrics.Peers; p != PeersNone && p != PeersAuto && p != PeersAll {
		return invalid("choose none, auto or all", "metrics.peers %q is not known", p)
	}
	if a := c.Metrics.Address; a != "" {
		return checkAddress("metrics.address", a, "as 127.0.0.1:9119 or :9119")
	}
	return nil
}

// checkAddress checks HOST:PORT or :PORT.
func checkAddress(key, a, hint string) error {
	host, port, err := net.SplitHostPort(a)
	n, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || bad != nil || n == 0 {
		return invalid(hint, "%s %q is no address with a port", key, a)
	}
	if _, err := netip.ParseAddr(host); host != "" && err != nil {
		return invalid(hint, "%s %q: %q is no address", key, a, host)
	}
	return nil
}

func invalid(hint, format string, args ...any) error {
	return model.Errorf(model.CodeInvalidConf, hint, format, args...)
}

func unsupported(hint, format string, args ...any) error {
	return model.Errorf(model.CodeUnsupportedField, hint, format, args...)
}
