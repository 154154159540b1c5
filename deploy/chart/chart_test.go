// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

type object = map[string]any

// text renders values and joins the manifests.
func text(t *testing.T, values object) string {
	t.Helper()
	all, err := Render(values, "net")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range all {
		for doc := range strings.SplitSeq(m.Text, "\n---\n") {
			if err := yaml.UnmarshalStrict([]byte(doc), &object{}); err != nil {
				t.Fatalf("%s: %v\n%s", m.Name, err, doc)
			}
		}
		out = append(out, m.Text)
	}
	return strings.Join(out, "---\n")
}

// Each value has an effect, and nothing stays in the default namespace.
func TestValues(t *testing.T) {
	defaults := text(t, nil)
	if strings.Contains(defaults, Namespace) {
		t.Errorf("something is in %s, not in the release's namespace", Namespace)
	}
	for path, want := range map[string]string{
		`{"image": {"repository": "example.org/weft"}}`:                                                  "image: example.org/weft:dev\n",
		`{"image": {"tag": "v1.2.3"}}`:                                                                   "image: localhost/weft:v1.2.3\n",
		`{"image": {"digest": "sha256:` + strings.Repeat("ab", 32) + `"}}`:                               "image: localhost/weft@sha256:abab",
		`{"image": {"pullPolicy": "Always"}}`:                                                            "imagePullPolicy: Always\n",
		`{"mode": "flannel"}`:                                                                            "      masquerade: true\n      mode: flannel\n",
		`{"mode": "flannel", "config": {"network": {"masquerade": false}}}`:                              "      masquerade: false\n",
		`{"mode": "policy"}`:                                                                             "      mode: policy\n",
		`{"mode": "multus"}`:                                                                             "- {name: host, mountPath: /host, mountPropagation: HostToContainer}\n",
		`{"config": {"network": {"podCIDRs": ["10.7.0.0/16"]}}}`:                                         "      podCIDRs:\n      - 10.7.0.0/16\n",
		`{"cni": {"confDir": "/var/lib/rancher/k3s/agent/etc/cni/net.d"}}`:                               "hostPath: {path: /var/lib/rancher/k3s/agent/etc/cni,",
		`{"cni": {"binDir": "/var/lib/rancher/k3s/data/cni"}}`:                                           "args: [install, --cni-bin-dir=/var/lib/rancher/k3s/data/cni,",
		`{"runtimeEndpoint": "/run/k3s/containerd/containerd.sock"}`:                                     "endpoint: /run/k3s/containerd/containerd.sock\n",
		`{"agent": {"metricsPort": 9200}}`:                                                               "path: /readyz, port: 9200}",
		`{"agent": {"maxUnavailable": "10%"}}`:                                                           "maxUnavailable: 10%\n",
		`{"agent": {"nodeSelector": {"network": "weft"}}}`:                                               "        network: weft\n",
		`{"agent": {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}}`:                       "      - key: dedicated\n",
		`{"agent": {"resources": {"limits": {"memory": "1Gi"}}}}`:                                        "memory: 1Gi\n",
		`{"tunnels": {"process": "always"}}`:                                                             "name: weft-tunnels\n",
		`{"config": {"network": {"encapsulation": "udp"}}}`:                                              "name: weft-tunnels\n",
		`{"mode": "flannel", "tunnels": {"process": "always"}}`:                                          "name: weft-tunnels\n",
		`{"tunnels": {"process": "always", "resources": {"requests": {"cpu": "78m"}}}}`:                  "cpu: 78m\n",
		`{"tunnels": {"process": "always"}, "config": {"stateDir": "/run/w/a"}}`:                         "--socket=/run/w/a/tunnels.sock]",
		`{"tunnels": {"process": "always"}, "config": {"network": {"wireguardKeyFile": "/etc/wg/key"}}}`: "mountPath: /etc/wg, readOnly: true}",
		`{"config": {"observe": {"listen": ":9443"}}}`:                                                   "resources: [subjectaccessreviews]\n",
		`{"controller": {"replicas": 2}}`:                                                                "replicas: 2\n",
		`{"controller": {"metricsPort": 9201}}`:                                                          "--metrics-address=127.0.0.1:9201",
		`{"controller": {"resources": {"requests": {"cpu": "77m"}}}}`:                                    "cpu: 77m\n",
		`{"monitoring": {"listen": "all"}}`:                                                              "--metrics-address=:9120",
		`{"monitoring": {"listen": "all", "podMonitor": true}}`:                                          "kind: PodMonitor\n",
		`{"monitoring": {"rules": true}}`:                                                                "alert: WeftPeersDown\n",
		`{"monitoring": {"dashboard": true}}`:                                                            "grafana_dashboard: \"1\"",
		`{"uninstall": true}`:                                                                            "args: [clean, --from=weft,",
		`{"kubevirt": {"directBinding": true}}`:                                                          "kind: NetworkAttachmentDefinition",
		`{"kubevirt": {"directBinding": true, "namespace": "vms"}}`:                                      "namespace: vms\n",
		`{"kubevirt": {"macvtap": true}, "mode": "multus"}`:                                              "macvtaps: /etc/macvtap/DP_MACVTAP_CONF\n",
		`{"kubevirt": {"macvtap": true}}`:                                                                "DAC_OVERRIDE, CHOWN]\n",
		`{"config": {}, "kubevirt": {"macvtap": true}}`:                                                  "mountPath: /host/var/lib/kubelet/device-plugins}",
	} {
		var values object
		if err := json.Unmarshal([]byte(path), &values); err != nil {
			t.Fatal(err)
		}
		if got := text(t, values); !strings.Contains(got, want) || strings.Contains(defaults, want) {
			t.Errorf("%s: no %q, or always", path, want)
		}
	}
}

// The tunnels' process is not there where agents have no tunnels in user space, or weft is removed; and of directories that
// are the same one is mounted.
func TestTunnels(t *testing.T) {
	for _, values := range []string{
		`{}`, `{"config": {"network": {"encapsulation": "vxlan"}}}`, `{"mode": "multus"}`,
		`{"tunnels": {"process": "never"}, "config": {"network": {"encapsulation": "udp"}}}`,
		`{"mode": "policy", "config": {"network": {"encapsulation": "udp"}}}`,
		`{"uninstall": true, "tunnels": {"process": "always"}}`,
	} {
		var v object
		if err := json.Unmarshal([]byte(values), &v); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text(t, v), "weft-tunnels") {
			t.Errorf("%s has the tunnels' process", values)
		}
	}
	one := text(t, object{"tunnels": object{"process": "always"}, "config": object{"network": object{
		"wireguardKeyFile": "/run/weft/key", "wireguardPSKFile": "/etc/wg/psk",
	}}})
	_, one, _ = strings.Cut(one, "name: weft-tunnels\n")
	one, _, _ = strings.Cut(one, "\n---\n")
	if strings.Count(one, "mountPath: /run/weft") != 1 || strings.Count(one, "mountPath: /etc/wg") != 1 {
		t.Errorf("the directories of the socket and the keys:\n%s", one)
	}
}

// A wrong value is refused with its path.
func TestWrongValues(t *testing.T) {
	for values, want := range map[string]string{
		`{"mode": "calico"}`:                                   "/mode",
		`{"modus": "cluster"}`:                                 "modus",
		`{"image": {"tag": "with space"}}`:                     "/image/tag",
		`{"image": {"digest": "sha256:12"}}`:                   "/image/digest",
		`{"image": {"pullPolicy": "Sometimes"}}`:               "/image/pullPolicy",
		`{"config": []}`:                                       "/config",
		`{"cni": {"confDir": "etc/cni"}}`:                      "/cni/confDir",
		`{"cni": {"binDir": "/opt/cni/bin/"}}`:                 "/cni/binDir",
		`{"runtimeEndpoint": "containerd"}`:                    "/runtimeEndpoint",
		`{"agent": {"metricsPort": 70000}}`:                    "/agent/metricsPort",
		`{"agent": {"maxUnavailable": 0}}`:                     "/agent/maxUnavailable",
		`{"agent": {"tolerations": {}}}`:                       "/agent/tolerations",
		`{"tunnels": {"process": "yes"}}`:                      "/tunnels/process",
		`{"tunnels": {"resources": {"request": {}}}}`:          "request",
		`{"mode": "policy", "tunnels": {"process": "always"}}`: "tunnels.process is always, and weft has no tunnels with mode policy",
		`{"controller": {"replicas": 0}}`:                      "/controller/replicas",
		`{"controller": {"replica": 1}}`:                       "replica",
		`{"kubevirt": {"directBinding": "yes"}}`:               "/kubevirt/directBinding",
		`{"kubevirt": {"namespace": "Not a name"}}`:            "/kubevirt/namespace",
		`{"kubevirt": {"macvtap": "yes"}}`:                     "/kubevirt/macvtap",
		`{"agent": {"resources": {"request": {}}}}`:            "request",
		`{"agent": {"nodeSelector": {"gpu": true}}}`:           "/agent/nodeSelector/gpu",
		`{"monitoring": {"listen": "node"}}`:                   "/monitoring/listen",
		`{"monitoring": {"podMonitor": true}}`:                 "set monitoring.listen to all",
		`{"monitoring": {"dashboard": "yes"}}`:                 "/monitoring/dashboard",
		`{"uninstall": "yes"}`:                                 "/uninstall",
	} {
		var v object
		if err := json.Unmarshal([]byte(values), &v); err != nil {
			t.Fatal(err)
		}
		_, err := Render(v, Namespace)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", values, err, want)
		}
	}
}

// The schema describes each value of values.yaml, and no other.
func TestSchemaIsComplete(t *testing.T) {
	var schema, values object
	for file, into := range map[string]*object{"values.schema.json": &schema, "values.yaml": &values} {
		b, err := files.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(b, into); err != nil {
			t.Fatal(err)
		}
	}
	delete(schema["properties"].(object), "global") // Helm passes it to each part of a chart
	compareKeys(t, "", schema, values)
}

func compareKeys(t *testing.T, path string, schema, values object) {
	t.Helper()
	if schema["additionalProperties"] != false || schema["properties"] == nil || len(values) == 0 {
		return
	}
	properties := schema["properties"].(object)
	if strings.HasSuffix(path, "/resources") { // a container's
		return
	}
	want, got := slices.Sorted(maps.Keys(values)), slices.Sorted(maps.Keys(properties))
	if !slices.Equal(want, got) {
		t.Errorf("%s: the schema has %q, values.yaml %q", path, got, want)
		return
	}
	for key, value := range values {
		if below, is := value.(object); is {
			compareKeys(t, path+"/"+key, properties[key].(object), below)
		}
	}
}

// Helm starts the pods again when the configuration changes, and only then.
func TestConfigurationRollsOut(t *testing.T) {
	checksums := func(values object) []string {
		t.Helper()
		c, err := Load()
		if err != nil {
			t.Fatal(err)
		}
		all, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: Name, Namespace: Namespace, Revision: 2}, nil)
		if err != nil {
			t.Fatal(err)
		}
		out, err := engine.Engine{Strict: true}.Render(c, all)
		if err != nil {
			t.Fatal(err)
		}
		var sums []string
		for _, name := range []string{"daemonset", "controller"} {
			found := ""
			for doc := range strings.SplitSeq(out[Name+"/templates/"+name+".yaml"], "\n---\n") {
				var o struct {
					Spec struct {
						Template struct {
							Metadata struct{ Annotations map[string]string }
						}
					}
				}
				if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
					t.Fatal(err)
				}
				found += o.Spec.Template.Metadata.Annotations["checksum/config"]
			}
			sums = append(sums, found)
		}
		return sums
	}
	first := checksums(nil)
	if len(first[0]) != 64 || first[0] != first[1] {
		t.Errorf("checksums %q", first)
	}
	if same := checksums(object{"agent": object{"maxUnavailable": 2}}); !slices.Equal(same, first) {
		t.Errorf("another value: %q, before %q", same, first)
	}
	if other := checksums(object{"config": object{"logLevel": "debug"}}); other[0] == first[0] || other[1] == first[1] {
		t.Errorf("another configuration has the same checksums")
	}
}

// A removal has no agents and no controller, and keeps their configuration, by which the nodes' files are found.
func TestUninstallValue(t *testing.T) {
	got := text(t, object{"uninstall": true})
	if strings.Contains(got, "kind: Deployment") || strings.Contains(got, "args: [agent") || strings.Count(got, "kind: DaemonSet") != 1 ||
		!strings.Contains(got, "kind: ConfigMap") {
		t.Error(got)
	}
}

// Grafana gets the dashboard as it is in the chart, and nothing is watched while weft is removed.
func TestMonitoring(t *testing.T) {
	all := object{"listen": "all", "podMonitor": true, "rules": true, "dashboard": true}
	got := text(t, object{"monitoring": all, "uninstall": true})
	for _, kind := range []string{"PodMonitor", "PrometheusRule", "grafana_dashboard"} {
		if strings.Contains(got, kind) {
			t.Errorf("a removal has a %s", kind)
		}
	}
	want, err := files.ReadFile("files/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for doc := range strings.SplitSeq(text(t, object{"monitoring": all}), "---\n") {
		var o struct{ Data map[string]string }
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		if dashboard, is := o.Data["weft.json"]; is {
			found = true
			if strings.TrimSpace(dashboard) != strings.TrimSpace(string(want)) || !json.Valid([]byte(dashboard)) {
				t.Errorf("the ConfigMap has another dashboard: %.200s", dashboard)
			}
		}
	}
	if !found {
		t.Error("there is no dashboard")
	}
}
