// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox/checkpoint"
)

const head = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n"

func one(t *testing.T, text string) *v1.Pod {
	t.Helper()
	pods, _, err := Parse([]byte(text), "test")
	if err != nil || len(pods) != 1 {
		t.Fatalf("%d pods, %v", len(pods), err)
	}
	return pods[0]
}

const main1 = "  containers: [{name: main, image: x, command: [a]}]\n"

func TestParse(t *testing.T) {
	text := "# a comment\n---\n" + head + main1 + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: n}\n--- \n" +
		"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: two, namespace: other, uid: abc}\n" +
		"  spec: {containers: [{name: c, command: [b]}]}\n"
	pods, others, err := Parse([]byte(text), "f.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range pods {
		names = append(names, Name(p)+" "+string(p.UID))
	}
	want := []string{"default/web " + store.DeriveUID(store.PodKey("default", "web")), "other/two abc"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"v1 Namespace"}, others); diff != "" {
		t.Error(diff)
	}
	if again, _, err := Parse([]byte(text), "f.yaml"); err != nil || !cmp.Equal(pods, again) {
		t.Error("parsing is not deterministic")
	}
}

// TestRefused: the error about a bad manifest names field and value, and has a hint.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"kind: List\napiVersion: v1\nitems: [{kind: List, apiVersion: v1}]": `nested lists are not supported`,
		"kind: Pod":                         `kind or apiVersion is missing`,
		"{":                                 `f.yaml: document 1:`,
		head:                                `spec.containers is empty`,
		head + "  containres: []\n" + main1: `unknown field "containres"`,
		"apiVersion: v1\nkind: Pod\nspec:\n" +
			main1: `metadata.name is missing`,
		"apiVersion: v1\nkind: Pod\nmetadata: {name: Web}\nspec:\n" +
			main1: `metadata.name "Web"`,
		"apiVersion: v1\nkind: Pod\nmetadata: {name: w, namespace: a/b}\nspec:\n" +
			main1: `metadata.namespace "a/b"`,
		"apiVersion: v1\nkind: Pod\nmetadata: {name: w, uid: ../../etc}\nspec:\n" +
			main1: `metadata.uid "../../etc"`,
		head +
			"  containers: [{name: main, image: x}]": `container "main": command is missing`,
		head +
			"  containers: [{name: main, args: [x]}]": `container "main": args without command`,
		head +
			"  containers: [{name: ../x, command: [a]}]": `container "../x": name is missing or not valid`,
		head +
			"  containers: [{name: a, command: [a]}, {name: a, command: [a]}]": `container "a": duplicate name`,
		head +
			"  containers: [{name: a, command: [a], workingDir: x}]": `workingDir "x" is relative`,
		head +
			"  containers: [{name: a, command: [a], ports: [{containerPort: 0}]}]": `containerPort 0 is out of range`,
		head +
			"  containers: [{name: a, command: [a], ports: [{containerPort: 1, hostPort: 70000}]}]": `hostPort 70000`,
		head +
			"  containers: [{name: a, command: [a], ports: [{containerPort: 1, protocol: IP}]}]": `protocol "IP" is unknown`,
		head +
			"  containers: [{name: a, command: [a], ports: [{containerPort: 1, hostIP: x}]}]": `hostIP "x"`,
		head +
			"  containers: [{name: a, command: [a], ports: [{containerPort: 1, hostPort: 9}, {containerPort: 2, hostPort: 9}]}]": `hostPort 9/TCP is used by container "a"`,
		head +
			"  containers: [{name: a, command: [a], envFrom: [{prefix: x}]}]": `envFrom is not supported`,
		head +
			"  containers: [{name: a, command: [a], env: [{name: X, valueFrom: {secretKeyRef: {key: k}}}]}]": `valueFrom of this kind is not supported`,
		head +
			"  hostNetwork: true\n  containers: [{name: a, command: [a], ports: [{containerPort: 1, hostPort: 2}]}]": `differs from containerPort`,
		head + "  restartPolicy: Maybe\n" + main1: `spec.restartPolicy "Maybe"`,
		head + "  dnsPolicy: None\n" + main1:      `dnsPolicy None without`,
		head + "  dnsConfig: {nameservers: [x]}\n" +
			main1: `nameservers[0] "x" is not an address`,
		head + "  hostPID: true\n  shareProcessNamespace: true\n" + main1: `contradict each other`,
		head + "  securityContext: {sysctls: [{name: kernel.panic, value: \"1\"}]}\n" +
			main1: `"kernel.panic" is not supported`,
		head + "  hostname: A_b\n" + main1:                     `spec.hostname "A_b"`,
		head + "  terminationGracePeriodSeconds: -1\n" + main1: `is negative`,
		head + "  terminationGracePeriodSeconds: 9223372037\n" +
			main1: `spec.terminationGracePeriodSeconds 9223372037 is above 9223372036`,
	} {
		_, _, err := Parse([]byte(text), "f.yaml")
		var f *model.Error
		if !errors.As(err, &f) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestConfig(t *testing.T) {
	p := one(
		t, "apiVersion: v1\nkind: Pod\nmetadata: {name: web, annotations: {kubernetes.io/egress-bandwidth: 1G}}\nspec:\n"+
			"  hostname: other\n  shareProcessNamespace: true\n  securityContext: {sysctls: [{name: net/ipv4/ip_forward, value: \"1\"}]}\n"+
			"  containers: [{name: main, command: [a], ports: [{containerPort: 53, hostPort: 5353, protocol: UDP, hostIP: 192.0.2.1}, {containerPort: 80}]}]\n")
	c, err := Config(p, Node{
		LogDir: "/l", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}, ClusterDNS: []string{"10.96.0.10"},
		Domain: "c.l",
	}, 3)
	if err != nil {
		t.Fatal(err)
	}
	if c.Hostname != "other" || c.Attempt != 3 || !c.SharePID || c.Sysctls["net.ipv4.ip_forward"] != "1" ||
		c.LogDir != "/l/default_web_"+string(p.UID) {
		t.Errorf("%+v", c)
	}
	if diff := cmp.Diff([]checkpoint.PortMapping{
		{HostPort: 5353, ContainerPort: 53, Protocol: "udp", HostIP: "192.0.2.1"},
	}, c.PortMappings); diff != "" {
		t.Error(diff)
	}
	want := map[string]any{
		"bandwidth": map[string]uint64{"egressRate": 1e9, "egressBurst": 1<<31 - 1},
		"ipRanges":  [][]map[string]string{{{"subnet": "10.0.0.0/24"}}},
		"dns": DNS{
			Servers: []string{"10.96.0.10"}, Searches: []string{"default.svc.c.l", "svc.c.l", "c.l"},
			Options: []string{"ndots:5"},
		},
		"io.kubernetes.cri.pod-annotations": map[string]string{"kubernetes.io/egress-bandwidth": "1G"},
	}
	if diff := cmp.Diff(want, c.Caps); diff != "" {
		t.Error(diff)
	}
	p.Annotations["kubernetes.io/egress-bandwidth"] = "fast"
	if _, err := Config(p, Node{}, 0); err == nil || !strings.Contains(err.Error(), `egress-bandwidth "fast"`) {
		t.Errorf("bandwidth: %v", err)
	}
}

func TestResolver(t *testing.T) {
	node := Node{
		ResolvConf: []byte("# x\nnameserver 192.0.2.9\nsearch corp.example\noptions timeout:1\n"),
		ClusterDNS: []string{"10.96.0.10"}, Domain: "c.l",
	}
	net := model.DNS{Nameservers: []string{"10.1.1.1"}, Domain: "d", Search: []string{"s"}, Options: []string{"rotate"}}
	corp := DNS{[]string{"192.0.2.9"}, []string{"corp.example"}, []string{"timeout:1"}}
	cni := DNS{[]string{"10.1.1.1"}, []string{"d", "s"}, []string{"rotate"}}
	cluster := DNS{
		[]string{"10.96.0.10"}, []string{"default.svc.c.l", "svc.c.l", "c.l", "corp.example"}, []string{"ndots:5"},
	}
	for _, tc := range []struct {
		spec string
		net  model.DNS
		want DNS
	}{
		{"", net, cluster},
		{"  dnsPolicy: Default\n", net, cni},
		{"  dnsPolicy: Default\n", model.DNS{}, corp},
		{"  hostNetwork: true\n", model.DNS{}, corp},
		{"  hostNetwork: true\n  dnsPolicy: ClusterFirstWithHostNet\n", model.DNS{}, cluster},
		{
			"  dnsPolicy: None\n  dnsConfig: {nameservers: [\"fd00::1\"], searches: [a, a], options: [{name: edns0}]}\n", net,
			DNS{[]string{"fd00::1"}, []string{"a"}, []string{"edns0"}},
		},
		{
			"  dnsConfig: {nameservers: [\"10.96.0.10\", \"10.0.0.1\"], options: [{name: ndots, value: \"2\"}]}\n", net,
			DNS{[]string{"10.96.0.10", "10.0.0.1"}, cluster.Searches, []string{"ndots:2"}},
		},
	} {
		if diff := cmp.Diff(tc.want, Resolver(one(t, head+tc.spec+main1), node, tc.net)); diff != "" {
			t.Errorf("%s%s", tc.spec, diff)
		}
	}
	if got, want := string(cni.ResolvConf()), "nameserver 10.1.1.1\nsearch d s\noptions rotate\n"; got != want {
		t.Errorf("%q", got)
	}
}

func TestSpec(t *testing.T) {
	p := one(
		t,
		head+
			"  nodeName: n1\n  containers:\n  - name: main\n    image: x\n    command: [\"$(A)\", \"$$(A)\", \"$(NONE)\", \"$(B)$\", \"$(\"]\n"+
			"    args: [\"$(IP)\"]\n    env: [{name: A, value: a}, {name: B, value: \"$(A)b\"}, {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, {name: PATH, value: /p}]\n")
	s := Spec(p, Containers(p)[0], Node{LogDir: "/l"}, 2, []string{"10.0.0.2", "fd00::2"}, nil)
	if diff := cmp.Diff([]string{"a", "$(A)", "$(NONE)", "ab$", "$(", "10.0.0.2"}, s.Argv); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"PATH=/p", "HOME=/root", "HOSTNAME=web", "A=a", "B=ab", "IP=10.0.0.2"},
		s.Env); diff != "" {
		t.Error(diff)
	}
	if s.Log != "/l/default_web_"+string(p.UID)+"/main/2.log" || s.Image != "x" {
		t.Errorf("%+v", s)
	}
	for path, want := range map[string]string{
		"metadata.name": "web", "metadata.namespace": "default", "metadata.uid": string(p.UID), "spec.nodeName": "n1",
		"status.podIPs": "10.0.0.2,fd00::2", "metadata.labels['x']": "",
	} {
		if got := field(p, Node{}, []string{"10.0.0.2", "fd00::2"}, path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
}

func TestIgnored(t *testing.T) {
	p := one(
		t,
		head+
			"  containers: [{name: a, image: nginx, command: [a], resources: {limits: {cpu: 1}}, livenessProbe: {httpGet: {port: 80}}}, {name: b, image: nginx, command: [a]}]\n",
	)
	want := []string{"image (nginx): recorded, not pulled; the root filesystem is the node's", "resources", "probes"}
	if diff := cmp.Diff(want, Ignored(p)); diff != "" {
		t.Error(diff)
	}
}

func TestLongHostname(t *testing.T) {
	p := one(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: "+strings.Repeat("a", 62)+"."+strings.Repeat("b", 60)+
		"}\nspec:\n"+main1)
	if h := Hostname(p); h != strings.Repeat("a", 62) {
		t.Errorf("host name %q", h)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head + main1))
	f.Add([]byte("apiVersion: v1\nkind: List\nitems: [{kind: Pod, apiVersion: v1}]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		pods, _, err := Parse(b, "fuzz")
		for _, p := range pods {
			if err == nil {
				_, _ = Config(p, Node{}, 0)
				for _, c := range Containers(p) {
					Spec(p, c, Node{}, 0, nil, nil)
				}
			}
		}
	})
}
