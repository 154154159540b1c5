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

// list is a flag that may be given several times.
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

// NewFlags makes flanneld's flags, with one dash or two, and sets o to their defaults.
func NewFlags(o *Options) *flag.FlagSet {
	f := flag.NewFlagSet("flanneld", flag.ContinueOnError)
	f.StringVar(&o.EtcdEndpoints, "etcd-endpoints", "http://127.0.0.1:4001,http://127.0.0.1:2379",
		"comma-separated `URLS` of etcd")
	f.StringVar(&o.EtcdPrefix, "etcd-prefix", "/coreos.com/network", "what all keys in etcd begin with")
	f.StringVar(&o.EtcdKeyFile, "etcd-keyfile", "", "`FILE` of the client's key for etcd")
	f.StringVar(&o.EtcdCertFile, "etcd-certfile", "", "`FILE` of the client's certificate for etcd")
	f.StringVar(&o.EtcdCAFile, "etcd-cafile", "", "`FILE` of the authorities that etcd is trusted by")
	f.StringVar(&o.EtcdUsername, "etcd-username", "", "user of etcd")
	f.StringVar(&o.EtcdPassword, "etcd-password", "", "the user's password")
	f.Var(list{
		&o.Ifaces,
	}, "iface", "`NAME` or address of the interface to the other nodes; several times: the first that fits")
	f.Var(list{
		&o.IfaceRegexes,
	}, "iface-regex", "regular expression of the interface's name or address; several times; after all of --iface")
	f.StringVar(&o.IfaceCanReach, "iface-can-reach", "", "take the interface through which this `ADDRESS` is reached")
	f.StringVar(&o.SubnetFile, "subnet-file", "/run/flannel/subnet.env", "`FILE` that is written for the CNI plugin")
	f.StringVar(&o.PublicIP, "public-ip", "", "IPv4 `ADDRESS` that other nodes reach this one at")
	f.StringVar(&o.PublicIPv6, "public-ipv6", "", "IPv6 `ADDRESS` that other nodes reach this one at")
	f.IntVar(&o.RenewMargin, "subnet-lease-renew-margin", 60,
		"renew the lease in etcd so many `MINUTES` before it ends, 1 to 1439")
	f.BoolVar(&o.IPMasq, "ip-masq", false, "give what leaves the network the node's address")
	f.BoolVar(&o.NoRandomFully, "ip-masq-fully-random-disable", false, "choose ports in order when masquerading")
	f.BoolVar(&o.KubeSubnetMgr, "kube-subnet-mgr", false, "get the subnet from Kubernetes instead of etcd")
	f.StringVar(&o.KubeAPIURL, "kube-api-url", "", "`URL` of the API server; in a pod it is known")
	f.StringVar(&o.KubeAnnotationPrefix, "kube-annotation-prefix", flannel.Prefix,
		"what the annotations of nodes begin with")
	f.StringVar(&o.Kubeconfig, "kubeconfig-file", "", "`FILE` by which the API server is reached; not needed in a pod")
	f.StringVar(&o.HealthzIP, "healthz-ip", "0.0.0.0", "`ADDRESS` of /healthz and /readyz")
	f.IntVar(&o.HealthzPort, "healthz-port", 0, "`PORT` of /healthz and /readyz; 0 is none")
	f.IntVar(&o.Resync, "iptables-resync", 5, "look at the rules every so many `SECONDS`")
	f.BoolVar(&o.ForwardRules, "iptables-forward-rules", true, "accept what is forwarded from and to pods")
	f.BoolVar(&o.Blackhole, "ip-blackhole-route", false,
		"refuse packets to addresses of this node's subnet that no pod has")
	f.StringVar(&o.NetConfPath, "net-config-path", "/etc/kube-flannel/net-conf.json",
		"`FILE` of the network's configuration, with --kube-subnet-mgr")
	f.BoolVar(&o.SetNodeNetworkUnavailable, "set-node-network-unavailable", true,
		"clear the node's condition NetworkUnavailable when ready")
	f.BoolVar(&o.Version, "version", false, "print the version and exit")
	f.IntVar(&o.Verbosity, "v", 0, "`LEVEL` of the log; from 2 on everything is logged")
	_ = f.String("vmodule", "", "taken for compatibility, without effect")
	_ = f.String("log_backtrace_at", "", "taken for compatibility, without effect")
	f.StringVar(&o.MasqConfig, "ip-masq-config", "",
		"`FILE` of ip-masq-agent's configuration: more destinations that see the pods' own addresses")
	f.StringVar(&o.StatusFile, "status-file", "", "`FILE` that weft mesh reads")
	return f
}

// FromEnv sets the flags that were not given from FLANNELD_<FLAG>.
func FromEnv(f *flag.FlagSet, getenv func(string) string) error {
	given := map[string]bool{}
	f.Visit(func(one *flag.Flag) { given[one.Name] = true })
	var err error
	f.VisitAll(func(one *flag.Flag) {
		name := "FLANNELD_" + strings.ToUpper(strings.ReplaceAll(one.Name, "-", "_"))
		value := getenv(name)
		if value == "" || given[one.Name] || err != nil {
			return
		}
		if e := f.Set(one.Name, value); e != nil {
			err = model.Faultf(model.CodeInvalidEnv, "it is the flag --"+one.Name, "%s %q: %w", name, value, e)
		}
	})
	return err
}

// checkEnv reads the variables that flannel's daemon reads beside its flags. Both are without effect here: events are
// not queued, and a daemon whose API server is away waits and goes on. What flannel refuses is refused.
func checkEnv(getenv func(string) string) error {
	const depth, goOn = "EVENT_QUEUE_DEPTH", "CONT_WHEN_CACHE_NOT_READY"
	if text := getenv(depth); text != "" {
		if n, err := strconv.Atoi(text); err != nil || n < 0 {
			return model.Faultf(model.CodeInvalidEnv, "flannel's is 5000; it has no effect",
				"%s %q is no number of events", depth, text)
		}
	}
	if text := getenv(goOn); text != "" {
		if _, err := strconv.ParseBool(text); err != nil {
			return model.Faultf(model.CodeInvalidEnv, "true or false; it has no effect",
				"%s %q is neither true nor false", goOn, text)
		}
	}
	return nil
}

// Check finds what cannot work.
func (o Options) Check() error {
	bad := func(hint, format string, args ...any) error {
		return model.Faultf(model.CodeInvalidConf, hint, format, args...)
	}
	for _, a := range []struct {
		flag, text string
		v4         bool
	}{{"public-ip", o.PublicIP, true}, {"public-ipv6", o.PublicIPv6, false}} {
		if a.text == "" {
			continue
		}
		ip, err := netip.ParseAddr(a.text)
		if err != nil || ip.Zone() != "" || ip.Is4() != a.v4 {
			return bad("write an address of that family", "--%s %q is no address of its family", a.flag, a.text)
		}
	}
	if o.IfaceCanReach != "" {
		if _, err := netip.ParseAddr(o.IfaceCanReach); err != nil {
			return bad("write the address of another node", "--iface-can-reach %q is no address", o.IfaceCanReach)
		}
	}
	switch {
	case o.RenewMargin < 1 || o.RenewMargin > 1439:
		return bad("1 to 1439 minutes are possible: a lease lasts for a day",
			"--subnet-lease-renew-margin %d is out of range", o.RenewMargin)
	case o.Resync < 1 || o.Resync > int(math.MaxInt64/time.Second):
		return bad("flannel's is 5", "--iptables-resync %d is no number of seconds", o.Resync)
	case o.HealthzPort < 0 || o.HealthzPort > 65535:
		return bad("0 is none", "--healthz-port %d is no port", o.HealthzPort)
	case o.SubnetFile == "":
		return bad("flannel's is /run/flannel/subnet.env", "--subnet-file is empty")
	}
	if ip, err := netip.ParseAddr(o.HealthzIP); o.HealthzPort > 0 && (err != nil || ip.Zone() != "") {
		return bad("0.0.0.0 is any", "--healthz-ip %q is no address", o.HealthzIP)
	}
	if _, err := flannel.KeysOf(o.KubeAnnotationPrefix); err != nil {
		return fmt.Errorf("--%w", err)
	}
	for _, r := range o.IfaceRegexes {
		if _, err := compile(r); err != nil {
			return bad("write for example eth.* or 192\\.168\\..*", "--iface-regex %q: %w", r, err)
		}
	}
	return nil
}

// public are the addresses of the flags.
func (o Options) public() []netip.Addr {
	var out []netip.Addr
	for _, text := range []string{o.PublicIP, o.PublicIPv6} {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, a)
		}
	}
	return out
}
