// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

func calicoGoldens() map[string]Input {
	file := func(text string) state.Answers {
		return state.Answers{{Space: state.Host, File: CalicoMTUFile}: {Found: true, Value: text}}
	}
	routes := v4()
	routes.Routes = append(routes.Routes[:0:0], model.Route{
		Dst: netip.MustParsePrefix("10.96.0.0/12"), GW: netip.MustParseAddr("10.1.0.9"),
	})
	origin := &model.Origin{Primary: true, Annotations: CalicoAnnotations(map[string]string{
		"cni.projectcalico.org/hwAddr":                "02:00:00:00:00:09",
		"cni.projectcalico.org/floatingIPs":           `["192.0.2.1","192.0.2.2","2001:db8::1"]`,
		"cni.projectcalico.org/allowedSourcePrefixes": `["10.9.0.0/16","fd09::/64"]`,
		"qos.projectcalico.org/ingressBandwidth":      "10M", "qos.projectcalico.org/ingressPeakrate": "20M",
		"kubernetes.io/egress-bandwidth":          "1M",
		"qos.projectcalico.org/ingressPacketRate": "100", "qos.projectcalico.org/egressPacketRate": "50",
		"qos.projectcalico.org/egressPacketBurst":     "9",
		"qos.projectcalico.org/ingressMaxConnections": "7", "qos.projectcalico.org/egressMaxConnections": "8",
		"qos.projectcalico.org/dscp": "AF21",
	}, nil)}
	further := model.Request{
		Origin: &model.Origin{Pod: model.PodRef{Namespace: "shop", Name: "web"}, Network: "shop/more"},
	}
	return map[string]Input{
		"calico-further": {
			Conf: confOf(calicoOpen), IPAM: dual(), Request: further,
			Answers: state.Answers{tablesQuery(): {Found: true, Tables: []uint32{100, 254}}},
		},
		"calico-annotations": {Conf: confOf(calicoOpen), IPAM: dual(), Request: model.Request{Origin: origin}},
		"calico": {
			Conf: confOf(`{"type":"calico","mtu":1450,"ipam":{"type":"calico-ipam"}}`),
			IPAM: &model.Result{IPs: []model.IP{ip("10.1.0.5/32", "")}},
		},
		"calico-dual": {
			Conf: confOf(
				`{"type":"calico","num_queues":4,"container_settings":{"allow_ip_forwarding":true},"ipam":{"type":"x"},"dns":{"domain":"d"}}`,
			), IPAM: dual(), MTU: 1400,
		},
		"calico-mtu-file": {
			Conf: confOf(`{"type":"calico","require_mtu_file":true,"ipam":{"type":"x"}}`), IPAM: v4(),
			Answers: file("1430\n"), MTU: 1450,
		},
		"calico-mtu-less": {
			Conf: confOf(`{"type":"calico","mtu":0,"ipam":{"type":"x"}}`), IPAM: v4(), Answers: file("1480\n"), MTU: 1450,
		},
		"calico-routes": {Conf: confOf(`{"type":"calico","ipam":{"type":"host-local"}}`), IPAM: routes},
		"calico-both": {
			Conf: confOf(`{"type":"calico","include_default_routes":true,"ipam":{"type":"host-local"}}`), IPAM: routes,
		},
	}
}

// The names are Calico's: tools for Calico find a pod's interface.
func TestCalicoHostName(t *testing.T) {
	pod := [][2]string{{"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", "web-0"}}
	for _, tt := range []struct {
		r    model.Request
		want string
	}{
		{model.Request{ContainerID: "0123456789abcdef", IfName: "eth0"}, "cali0123456789a"},
		{model.Request{ContainerID: "0123", IfName: "eth0"}, "cali0123"},
		{model.Request{ContainerID: "0123", IfName: "eth0", Args: pod}, "cali0d7763386da"},
		{model.Request{ContainerID: "4567", IfName: "eth0", Args: pod}, "cali0d7763386da"},
		{
			model.Request{
				ContainerID: "4567", IfName: "eth0", Origin: &model.Origin{Pod: model.PodRef{Namespace: "default", Name: "web-0"}},
			}, "cali0d7763386da",
		},
		{model.Request{ContainerID: "4567", IfName: "net1", Args: pod}, "cali368bd2cc4b9"},
		{model.Request{ContainerID: "4567", IfName: "net1"}, "calic4da830f2f4"},
	} {
		if got := CalicoHostName(tt.r); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.r, got, tt.want)
		}
	}
}

func TestCalicoBadInput(t *testing.T) {
	for text, want := range map[string]string{
		`{"type":"calico"}`: `plugin calico: ipam.type is missing (add "ipam": {"type": "calico-ipam"})`,
		`{"type":"calico","mtu":"x","ipam":{"type":"x"}}`:                            "plugin calico: mtu is string, want int",
		`{"type":"calico","mtu":60,"ipam":{"type":"x"}}`:                             "plugin calico: mtu 60 is not between 68 and 65535 (0 leaves it to the kernel)",
		`{"type":"calico","num_queues":-1,"ipam":{"type":"x"}}`:                      "plugin calico: num_queues -1 is not between 1 and 4096 (leave it out to have 1)",
		`{"type":"calico","policy":{"type":"mesos"},"ipam":{"type":"x"}}`:            `plugin calico: policy.type "mesos" is not known (leave it out, or write "k8s")`,
		`{"type":"calico","policy_setup_timeout_seconds":-1,"ipam":{"type":"x"}}`:    "plugin calico: policy_setup_timeout_seconds -1 is negative (0 is no timeout)",
		`{"type":"calico","readiness_gates":["localhost:9099"],"ipam":{"type":"x"}}`: `plugin calico: readiness_gates[0] "localhost:9099" is not an HTTP URL (for example http://localhost:9099/readiness)`,
		`{"type":"calico","container_settings":[],"ipam":{"type":"x"}}`:              "plugin calico: container_settings is array, want object",
		`{"type":"calico","ipam":{"type":"x"},"dns":7}`:                              "plugin calico: dns is number, want object",
	} {
		err := Validate(Calico{}, confOf(text))
		if err == nil || err.Error() != want {
			t.Errorf("%s:\n%v, want\n%s", text, err, want)
		}
	}
}

func TestCalicoWarnings(t *testing.T) {
	got := Calico{}.Warnings([]byte(`{"type":"calico","policy_setup_timeout_seconds":5,"ipam":{"type":"x"}}`))
	if len(got) != 2 || got[0].Field != "policy.type" || got[1].Field != "policy_setup_timeout_seconds" {
		t.Errorf("%+v", got)
	}
	if got := (Calico{}).Warnings([]byte(calicoOpen)); got != nil {
		t.Errorf("%+v", got)
	}
}

func TestCalicoRefusals(t *testing.T) {
	conf := confOf(`{"type":"calico","require_mtu_file":true,"ipam":{"type":"x"}}`)
	mtu := state.Query{Space: state.Host, File: CalicoMTUFile}
	host := state.Query{Space: state.Host, Link: "calic0ffee"}
	for _, tt := range []struct {
		answers state.Answers
		ipam    *model.Result
		code    model.Code
		want    string
	}{
		{nil, v4(), model.CodeTryAgain, "plugin calico: /var/lib/calico/mtu does not exist yet"},
		{
			state.Answers{mtu: {Found: true, Value: "x"}},
			v4(), model.CodeInvalidConf,
			`plugin calico: /var/lib/calico/mtu: "x" is not an MTU`,
		},
		{
			state.Answers{mtu: {Found: true, Value: "12"}},
			v4(), model.CodeInvalidConf,
			"plugin calico: mtu 12 is not between 68 and 65535",
		},
		{state.Answers{mtu: {Found: true, Value: "1400"}}, nil, model.CodeInvalidConf, "plugin calico: ipam returned no address"},
		{
			state.Answers{host: {Found: true, Link: state.Link{Name: "calic0ffee", Alias: "weft:net/other/eth0"}}},
			v4(), model.CodeTryAgain,
			`interface "calic0ffee" exists already on the node (weft:net/other/eth0)`,
		},
		{
			state.Answers{freeName(request()): {Found: true}},
			v4(), model.CodeExists,
			`interface "eth0" exists already in /run/netns/c0ffee`,
		},
	} {
		_, err := Calico{}.Plan(Input{Conf: conf, Request: request(), Answers: tt.answers, IPAM: tt.ipam})
		if f, ok := err.(*model.Error); !ok || f.Code != tt.code || f.Msg != tt.want { //nolint:errorlint // planners do not wrap errors
			t.Errorf("%v, want %d %s", err, tt.code, tt.want)
		}
	}
}

func TestCalicoPrefixes(t *testing.T) {
	prefixes := []netip.Prefix{netip.MustParsePrefix("10.8.3.0/24"), netip.MustParsePrefix("fd00:8::/64")}
	for _, tt := range []struct{ in, want string }{
		{
			`{"ipam":{"subnet":"usePodCidr","type":"host-local"},"type":"calico"}`,
			`{"ipam":{"subnet":"10.8.3.0/24","type":"host-local"},"type":"calico"}`,
		},
		{
			`{"ipam":{"ranges":[[{"subnet":"usepodcidr"}],[{"rangeStart":"fd00:8::9","subnet":"USEPODCIDRIPV6"},{"subnet":"10.9.0.0/24"}]],"type":"host-local"},"type":"calico"}`,
			`{"ipam":{"ranges":[[{"subnet":"10.8.3.0/24"}],[{"rangeStart":"fd00:8::9","subnet":"fd00:8::/64"},{"subnet":"10.9.0.0/24"}]],"type":"host-local"},"type":"calico"}`,
		},
	} {
		conf := confOf(tt.in)
		if !(Calico{}).WantsPrefixes(conf) {
			t.Errorf("%s asks for nothing", tt.in)
		}
		got, err := Calico{}.WithPrefixes(conf, prefixes)
		if err != nil || string(got.Raw) != tt.want {
			t.Errorf("%s, %v, want\n%s", got.Raw, err, tt.want)
		}
	}
	_, err := Calico{}.WithPrefixes(
		confOf(`{"type":"calico","ipam":{"type":"host-local","ranges":[[{"subnet":"usePodCidrIPv6"}]]}}`), prefixes[:1],
	)
	const want = `plugin calico: ipam.ranges[][].subnet "usePodCidrIPv6": this node has no IPv6 pod CIDR ` +
		"(give the Node object podCIDRs (kube-controller-manager --allocate-node-cidrs))"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	_, err = Calico{}.WithPrefixes(confOf(`{"type":"calico","ipam":{"type":"host-local","ranges":{"a":"usePodCidr"}}}`),
		prefixes)
	if err == nil || err.Error() != "plugin calico: ipam.ranges is object, want list" {
		t.Errorf("%v", err)
	}
}
