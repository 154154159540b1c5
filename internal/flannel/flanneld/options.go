// SPDX-License-Identifier: Apache-2.0

package flanneld

import (
	"flag"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/goflag"
	"github.com/weft-net/weft/internal/model"
)

// Options are flanneld's flags.
type Options struct {
	EtcdEndpoints, EtcdPrefix, EtcdKeyFile, EtcdCertFile, EtcdCAFile, EtcdUsername, EtcdPassword string

	Ifaces, IfaceRegexes []string
	IfaceCanReach        string
	SubnetFile           string
	PublicIP, PublicIPv6 string
	// RenewMargin is in minutes, Resync in seconds.
	RenewMargin, Resync int

	IPMasq, NoRandomFully, ForwardRules, Blackhole bool

	KubeSubnetMgr                                bool
	KubeAPIURL, KubeAnnotationPrefix, Kubeconfig string
	NetConfPath                                  string
	SetNodeNetworkUnavailable                    bool
	HealthzIP                                    string
	HealthzPort                                  int
	Version                                      bool
	Verbosity                                    int
	// These are weft's own.
	MasqConfig string // ip-masq-agent's configuration
	StatusFile string // for weft mesh
}

// list is a flag that may be repeated.
type list struct{ into *[]string }

func (l list) String() string {
	if l.into == nil {
		return ""
	}
	return strings.Join(*l.into, ",")
}

func (l list) Set(s string) error {
	*l.into = append(*l.into, s)
	return nil
}

// NewFlags returns flanneld's flags, with one dash or two, and sets o to their defaults.
func NewFlags(o *Options) *flag.FlagSet {
	f := flag.NewFlagSet("flanneld", flag.ContinueOnError)
	f.StringVar(&o.EtcdEndpoints, "etcd-endpoints", "http://127.0.0.1:4001,http://127.0.0.1:2379",
		"comma-separated `URLS` of etcd")
	f.StringVar(&o.EtcdPrefix, "etcd-prefix", "/coreos.com/network", "`PREFIX` of all keys in etcd")
	f.StringVar(&o.EtcdKeyFile, "etcd-keyfile", "", "`FILE` of the client's key for etcd")
	f.StringVar(&o.EtcdCertFile, "etcd-certfile", "", "`FILE` of the client's certificate for etcd")
	f.StringVar(&o.EtcdCAFile, "etcd-cafile", "", "`FILE` of the CA certificates for etcd")
	f.StringVar(&o.EtcdUsername, "etcd-username", "", "`USER` of etcd")
	f.StringVar(&o.EtcdPassword, "etcd-password", "", "`PASSWORD` of the user of etcd")
	f.Var(list{
		&o.Ifaces,
	}, "iface", "`NAME` or address of the interface to the other nodes; repeatable: the first one that matches")
	f.Var(list{
		&o.IfaceRegexes,
	}, "iface-regex", "`REGEXP` of the interface's name or address; repeatable; tried after all of --iface")
	f.StringVar(&o.IfaceCanReach, "iface-can-reach", "", "use the interface of the route to this `ADDRESS`")
	f.StringVar(&o.SubnetFile, "subnet-file", "/run/flannel/subnet.env", "`FILE` written for the CNI plugin")
	f.StringVar(&o.PublicIP, "public-ip", "", "IPv4 `ADDRESS` at which other nodes reach this one")
	f.StringVar(&o.PublicIPv6, "public-ipv6", "", "IPv6 `ADDRESS` at which other nodes reach this one")
	f.IntVar(&o.RenewMargin, "subnet-lease-renew-margin", 60,
		"`MINUTES` before its end at which the lease in etcd is renewed, 1 to 1439")
	f.BoolVar(&o.IPMasq, "ip-masq", false, "masquerade (SNAT) traffic that leaves the pod network")
	f.BoolVar(&o.NoRandomFully, "ip-masq-fully-random-disable", false, "do not randomize ports when masquerading")
	f.BoolVar(&o.KubeSubnetMgr, "kube-subnet-mgr", false, "get the subnet from Kubernetes instead of etcd")
	f.StringVar(&o.KubeAPIURL, "kube-api-url", "", "`URL` of the API server (default: in a pod, its own cluster's)")
	f.StringVar(&o.KubeAnnotationPrefix, "kube-annotation-prefix", flannel.Prefix,
		"`PREFIX` of the annotations of nodes")
	f.StringVar(
		&o.Kubeconfig,
		"kubeconfig-file",
		"",
		"kubeconfig `FILE` of the API server (default: in a pod, its service account)",
	)
	f.StringVar(&o.HealthzIP, "healthz-ip", "0.0.0.0", "`ADDRESS` of /healthz and /readyz")
	f.IntVar(&o.HealthzPort, "healthz-port", 0, "`PORT` of /healthz and /readyz; 0 disables them")
	f.IntVar(&o.Resync, "iptables-resync", 5, "`SECONDS` between two checks of the rules")
	f.BoolVar(&o.ForwardRules, "iptables-forward-rules", true, "accept traffic forwarded from and to pods")
	f.BoolVar(&o.Blackhole, "ip-blackhole-route", false,
		"add a blackhole route for this node's subnet: drop packets to addresses that no pod has")
	f.StringVar(&o.NetConfPath, "net-config-path", "/etc/kube-flannel/net-conf.json",
		"`FILE` of the network's configuration, with --kube-subnet-mgr")
	f.BoolVar(&o.SetNodeNetworkUnavailable, "set-node-network-unavailable", true,
		"clear the node's condition NetworkUnavailable when the network is ready")
	f.BoolVar(&o.Version, "version", false, "print the version and exit")
	f.IntVar(&o.Verbosity, "v", 0, "`LEVEL` of the log; 2 and above log at debug level")
	_ = f.String("vmodule", "", "`PATTERN=LEVEL`, accepted for compatibility, without effect")
	_ = f.String("log_backtrace_at", "", "`FILE:LINE`, accepted for compatibility, without effect")
	f.StringVar(&o.MasqConfig, "ip-masq-config", "",
		"`FILE` of ip-masq-agent's configuration: further destinations that are not masqueraded")
	f.StringVar(&o.StatusFile, "status-file", "", "`FILE` of the mesh's status, for weft mesh (default: none)")
	return f
}

// FromEnv sets the flags that were not set on the command line from FLANNELD_<FLAG>.
func FromEnv(f *flag.FlagSet, getenv func(string) string) error {
	set := map[string]bool{}
	f.Visit(func(one *flag.Flag) { set[one.Name] = true })
	var err error
	f.VisitAll(func(one *flag.Flag) {
		name := "FLANNELD_" + strings.ToUpper(strings.ReplaceAll(one.Name, "-", "_"))
		value := getenv(name)
		if value == "" || set[one.Name] || err != nil {
			return
		}
		if e := f.Set(one.Name, value); e != nil {
			err = model.Errorf(model.CodeInvalidEnv, "it sets the flag --"+one.Name, "%s %q is not %s", name, value,
				goflag.Kind(one))
		}
	})
	return err
}

// checkEnv validates the variables that flanneld reads besides its flags, as flanneld does. They have no effect here:
// events are not queued, and the daemon waits while its API server does not answer.
func checkEnv(getenv func(string) string) error {
	const depth, continueKey = "EVENT_QUEUE_DEPTH", "CONT_WHEN_CACHE_NOT_READY"
	if text := getenv(depth); text != "" {
		if n, err := strconv.Atoi(text); err != nil || n < 0 {
			return model.Errorf(model.CodeInvalidEnv, "flannel's is 5000; it has no effect",
				"%s %q is not a number of events", depth, text)
		}
	}
	if text := getenv(continueKey); text != "" {
		if _, err := strconv.ParseBool(text); err != nil {
			return model.Errorf(model.CodeInvalidEnv, "true or false; it has no effect",
				"%s %q is not true or false", continueKey, text)
		}
	}
	return nil
}

// Check validates the flags.
func (o Options) Check() error {
	bad := func(hint, format string, args ...any) error {
		return model.Errorf(model.CodeInvalidConf, hint, format, args...)
	}
	for _, a := range []struct {
		flag, text string
		v4         bool
		example    string
	}{{"public-ip", o.PublicIP, true, "192.0.2.7"}, {"public-ipv6", o.PublicIPv6, false, "2001:db8::7"}} {
		if a.text == "" {
			continue
		}
		ip, err := netip.ParseAddr(a.text)
		if err != nil || ip.Zone() != "" || ip.Is4() != a.v4 {
			return bad("for example --"+a.flag+" "+a.example, "--%s %q is not an address of its family", a.flag, a.text)
		}
	}
	if o.IfaceCanReach != "" {
		if _, err := netip.ParseAddr(o.IfaceCanReach); err != nil {
			return bad("use the address of another node, for example --iface-can-reach 192.0.2.7",
				"--iface-can-reach %q is not an IP address", o.IfaceCanReach)
		}
	}
	switch {
	case o.RenewMargin < 1 || o.RenewMargin > 1439:
		return bad("for example --subnet-lease-renew-margin 60: a lease lasts for a day",
			"--subnet-lease-renew-margin %d is out of range: 1 to 1439 minutes", o.RenewMargin)
	case o.Resync < 1 || o.Resync > int(math.MaxInt64/time.Second):
		return bad("for example --iptables-resync 5", "--iptables-resync %d is out of range: 1 to %d seconds", o.Resync,
			int(math.MaxInt64/time.Second))
	case o.HealthzPort < 0 || o.HealthzPort > 65535:
		return bad("for example --healthz-port 8080; 0 disables it", "--healthz-port %d is out of range: 0 to 65535",
			o.HealthzPort)
	case o.SubnetFile == "":
		return bad("for example --subnet-file /run/flannel/subnet.env", "--subnet-file is empty")
	}
	if ip, err := netip.ParseAddr(o.HealthzIP); o.HealthzPort > 0 && (err != nil || ip.Zone() != "") {
		return bad("for example --healthz-ip 0.0.0.0", "--healthz-ip %q is not an IP address", o.HealthzIP)
	}
	if _, err := flannel.KeysOf(o.KubeAnnotationPrefix); err != nil {
		return fmt.Errorf("--%w", err)
	}
	for _, r := range o.IfaceRegexes {
		if _, err := compile(r); err != nil {
			return bad(`for example --iface-regex 'eth.*'`, "--iface-regex %q is not a regular expression: %s", r,
				strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		}
	}
	return nil
}

// public returns the addresses of the flags.
func (o Options) public() []netip.Addr {
	var out []netip.Addr
	for _, text := range []string{o.PublicIP, o.PublicIPv6} {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, a)
		}
	}
	return out
}
