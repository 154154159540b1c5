// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/nettest"
)

// source is a version of another project's repository, whose files are read as they are.
type source struct {
	dir string
}

// calicoSource, multusSource and whereaboutsSource are the projects' sources.
func calicoSource(t *testing.T) source      { return newSource(t, "CALICO_SOURCE", "v3.32.1") }
func multusSource(t *testing.T) source      { return newSource(t, "MULTUS_SOURCE", "v4.3.0") }
func whereaboutsSource(t *testing.T) source { return newSource(t, "WHEREABOUTS_SOURCE", "v0.9.4") }

// newSource fetches a version of the repository that a variable names, a URL or a directory; without it the test is skipped.
func newSource(t *testing.T, variable, version string) source {
	t.Helper()
	from := os.Getenv(variable)
	if from == "" {
		nettest.SkipMissing(t, variable+" is not set: it names a repository with the files of another project, "+version)
	}
	s := source{t.TempDir()}
	s.git(t, "init", "-q", "--bare")
	s.git(t, "fetch", "-q", "--depth", "1", from, "refs/tags/"+version)
	return s
}

func (s source) git(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"--git-dir", s.dir}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

// file returns the text of a file.
func (s source) file(t *testing.T, path string) string {
	t.Helper()
	return s.git(t, "show", "FETCH_HEAD:"+path)
}

// documents returns the documents of a manifest of some kinds, as they are written there.
func documents(t *testing.T, manifest string, kinds ...string) (out []string) {
	t.Helper()
	for _, text := range regexp.MustCompile(`(?m)^---.*$`).Split(manifest, -1) {
		var o struct{ Kind string }
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if slices.Contains(kinds, o.Kind) {
			out = append(out, text)
		}
	}
	if len(out) == 0 {
		t.Fatalf("no %s in\n%s", kinds, manifest)
	}
	return out
}

const crd = "CustomResourceDefinition"

// define creates kinds, and waits until they are served.
func (c Cluster) define(t *testing.T, manifests ...string) {
	t.Helper()
	c.applyServerSide(t, strings.Join(manifests, "\n---\n"))
	c.kubectl(t, "wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
}

// applyServerSide applies manifests, first as a dry run: the API server validates each by its kind's schema.
func (c Cluster) applyServerSide(t *testing.T, manifests string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	for _, flag := range []string{"--dry-run=server", "--dry-run=none"} {
		out, err := c.call(ctx, manifests, "kubectl", "--name", c.name, "apply", "--server-side", flag, "-f", "-")
		if err != nil {
			t.Fatalf("kubectl apply %s: %v%s", flag, err, out)
		}
	}
}

// installWeft installs deploy/weft.yaml with some of its lines replaced.
func (c Cluster) installWeft(t *testing.T, replace ...string) {
	t.Helper()
	c.must(t, "load", image(t))
	c.kubectl(t, "apply", "-f", "../../../deploy/crds.yaml")
	text, err := os.ReadFile("../../../deploy/weft.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(string(text), replace[i]) {
			t.Fatalf("deploy/weft.yaml has no %q", replace[i])
		}
	}
	c.apply(t, "kube-system", strings.NewReplacer(replace...).Replace(string(text)))
	c.weftReady(t)
}

// TestCalicoFiles: Calico's manifest as it is, its network configuration as its installer writes it, executed by the runtime
// with weft's programs under the names of Calico's, and its own examples of pools and policies. Pods have addresses of
// Calico's pool and reach each other, its policies are enforced, and a deleted pod's address is released.
func TestCalicoFiles(t *testing.T) {
	weft(t)
	calico := calicoSource(t)
	c := newCluster(t, "calfil", "--cni", "none", "--no-dns")
	c.applyServerSide(t, calico.file(t, "manifests/calico.yaml"))
	// docs/tasks/migrate-from-calico.md, step 1: Calico's own programs do not run.
	c.kubectl(t, "-n", "kube-system", "patch", "daemonset", "calico-node", "-p",
		`{"spec":{"template":{"spec":{"nodeSelector":{"weft.dev/replaces":"calico"}}}}}`)
	c.kubectl(t, "-n", "kube-system", "scale", "deployment/calico-kube-controllers", "--replicas=0")
	c.define(t, documents(t, calico.file(t, "manifests/calico-v3-crds.yaml"), crd)...)
	const examples = "confd/tests/mock_data/calicoctl/"
	c.applyServerSide(t, strings.Join(slices.Concat(
		documents(t, calico.file(t, examples+"mesh/vxlan-always/input.yaml"), "IPPool"),
		documents(t, calico.file(t, examples+"explicit_peering/global/input.yaml"), "BGPConfiguration", "BGPPeer")), "\n---\n"))
	for _, node := range c.nodes(t) {
		c.calicoConfig(t, node)
	}
	c.installWeft(t, "mode: cluster", "mode: none\n      addresses: pools", "--agent-plugins", "--plugins")
	c.kubectl(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=120s")
	for _, node := range c.nodes(t) {
		if files := c.must(t, "exec", node, "ls", "/etc/cni/net.d"); strings.TrimSpace(files) != "10-calico.conflist" {
			t.Errorf("%s has the configurations %s", node, files)
		}
	}
	before := c.policyPods(t)
	c.enforces(t, calico.file(t, "hack/test/kind/migration/seed-resources.yaml"))
	c.released(t, before)
}

// calicoConfig writes the runtime's configuration of Calico's ConfigMap, as Calico's installer does.
func (c Cluster) calicoConfig(t *testing.T, node string) {
	t.Helper()
	text := strings.NewReplacer("__KUBERNETES_NODE_NAME__", node, "__CNI_MTU__",
		c.kubectl(t, "-n", "kube-system", "get", "configmap", "calico-config", "-o", "jsonpath={.data.veth_mtu}"),
		"__KUBECONFIG_FILEPATH__", "/etc/cni/net.d/calico-kubeconfig").Replace(
		c.kubectl(t, "-n", "kube-system", "get", "configmap", "calico-config", "-o", "jsonpath={.data.cni_network_config}"))
	if !json.Valid([]byte(text)) || strings.Contains(text, "__") {
		t.Fatalf("10-calico.conflist: %s", text)
	}
	if err := os.WriteFile(c.path(node, "10-calico.conflist"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// seedNamespace is the namespace of Calico's examples.
const seedNamespace = "migration-test"

// seedPools are the pools of Calico's examples, in which each node's tunnels have an address. Pods have one of the first.
func seedPools() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("dead:beef::/64")}
}

// policyPods starts pods for Calico's examples of policies: web, which they open on port 80, sealed, which they isolate,
// and two that they do not select. It returns how many addresses each node had allocated before.
func (c Cluster) policyPods(t *testing.T) map[string]int {
	t.Helper()
	c.namespaceNamed(t, seedNamespace)
	before := map[string]int{}
	for _, node := range c.nodes(t) {
		eventually(t, time.Minute, func() error { // those of the tunnels are allocated soon
			n := c.allocated(t, node)
			if n < len(seedPools()) {
				return fmt.Errorf("%s has %d addresses of tunnels", node, n)
			}
			before[node] = n
			return nil
		})
	}
	pod := func(name, node, labels string, ports ...string) string {
		containers := ""
		for i, port := range ports {
			containers += fmt.Sprintf("  - {name: c%d, image: %s, args: [netexec, --http-port=%s, --udp-port=%d], "+
				"readinessProbe: {httpGet: {path: /hostname, port: %[3]s}, periodSeconds: 1}}\n", i, agnhost, port, 8081+i)
		}
		return fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {%s}}\nspec:\n  nodeName: %s\n"+
			"  terminationGracePeriodSeconds: 0\n  containers:\n%s", name, labels, node, containers)
	}
	c.apply(t, seedNamespace, pod("web", "node2", "app: web", "80", "8080")+
		pod("sealed", "node2", `migration-test: "true"`, "8080")+
		pod("far", "node1", "app: far", "8080")+pod("near", "node2", "app: near", "8080"))
	for _, p := range c.allReady(t, seedNamespace, 4, 3*time.Minute) {
		if a, err := netip.ParseAddr(p.Status.PodIP); err != nil || !seedPools()[0].Contains(a) {
			t.Errorf("pod %s has the address %s, want one of %s", p.Metadata.Name, p.Status.PodIP, seedPools()[0])
		}
	}
	return before
}

// seedPod returns a pod of policyPods.
func (c Cluster) seedPod(t *testing.T, name string) Pod {
	t.Helper()
	all := c.pods(t, seedNamespace)
	return all[slices.IndexFunc(all, func(p Pod) bool { return p.Metadata.Name == name })]
}

// enforces checks connections before Calico's example policies exist, with them, and after them.
func (c Cluster) enforces(t *testing.T, policies string) {
	t.Helper()
	c.expectReach(t, true)
	c.applyServerSide(t, policies)
	c.expectReach(t, false)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if out, err := c.call(ctx, policies, "kubectl", "--name", c.name, "delete", "-f", "-"); err != nil {
		t.Fatalf("%v%s", err, out)
	}
	c.expectReach(t, true)
}

// expectReach checks the connections of pods. The examples deny those that are only allowed while open.
func (c Cluster) expectReach(t *testing.T, open bool) {
	t.Helper()
	for _, try := range []struct {
		from, to string
		port     int
		allowed  bool
	}{
		{"far", "web", 80, true},
		{"near", "web", 80, true},
		{"far", "near", 8080, true},
		{"web", "far", 8080, true}, // the examples govern only its ingress
		{"far", "web", 8080, open},
		{"near", "web", 8080, open},
		{"far", "sealed", 8080, open},
		{"sealed", "web", 80, open},
		{"sealed", "far", 8080, open},
	} {
		addr := c.seedPod(t, try.to).Status.PodIP
		eventually(t, time.Minute, func() error {
			out, err := c.try("kubectl", "-n", seedNamespace, "exec", try.from, "-c", "c0", "--", "curl", "-sS", "-m", "3",
				fmt.Sprintf("http://%s:%d/hostname", addr, try.port))
			switch {
			case try.allowed && err == nil && out != try.to:
				return fmt.Errorf("%s got %q from %s", try.from, out, try.to)
			case try.allowed:
				return err
			case err == nil:
				return fmt.Errorf("%s reaches %s port %d, which Calico's policies deny", try.from, try.to, try.port)
			case !strings.Contains(err.Error(), "timed out"):
				return err
			}
			return nil
		})
	}
}

// released deletes the pods of policyPods and checks that no more addresses are allocated than before they started: those
// of the nodes' tunnels.
func (c Cluster) released(t *testing.T, before map[string]int) {
	t.Helper()
	for node, was := range before {
		if c.allocated(t, node) <= was {
			t.Errorf("%s has allocated no address to a pod", node)
		}
	}
	c.kubectl(t, "-n", seedNamespace, "delete", "pod", "--all", "--timeout=120s")
	eventually(t, time.Minute, func() error {
		for node, was := range before {
			if n := c.allocated(t, node); n > was {
				return fmt.Errorf("%s has %d allocated addresses, and %d before the pods", node, n, was)
			}
		}
		return nil
	})
}

// allocated returns how many addresses of pools are allocated on the node, by the agent's metrics.
func (c Cluster) allocated(t *testing.T, node string) (n int) {
	t.Helper()
	for line := range strings.Lines(c.must(t, "exec", node, "curl", "-sS", "-m", "5", "http://127.0.0.1:9119/metrics")) {
		if strings.HasPrefix(line, "weft_ipam_addresses_allocated{") {
			var v float64
			if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &v); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			n += int(v)
		}
	}
	return n
}

// controlEtcd is the address of the cluster's own etcd, in the namespace of the control plane.
const controlEtcd = "http://127.0.0.1:2379"

// TestCalicoEtcd: pools and policies are in an etcd, under Calico's keys, and are imported; the policies that the import
// writes are applied to an API server with Calico's kinds, and enforced. The etcd is the cluster's own: Kubernetes uses
// other keys.
func TestCalicoEtcd(t *testing.T) {
	weft(t)
	calico := calicoSource(t)
	c := newCluster(t, "caletc", "--cni", "none", "--no-dns")
	pools := documents(t, calico.file(t, "confd/tests/mock_data/calicoctl/mesh/vxlan-always/input.yaml"), "IPPool")
	seed := calico.file(t, "hack/test/kind/migration/seed-resources.yaml")
	policies := documents(t, seed, "Tier", "GlobalNetworkPolicy", "NetworkPolicy", "HostEndpoint", "GlobalNetworkSet", "NetworkSet")
	for _, text := range slices.Concat(pools, policies) {
		c.putCalico(t, text)
	}
	dir := t.TempDir()
	config, file := filepath.Join(dir, "calicoctl.cfg"), filepath.Join(dir, "policies.yaml")
	err := os.WriteFile(config, []byte("apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec:\n"+
		"  datastoreType: etcdv3\n  etcdEndpoints: "+controlEtcd+"\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "apply", "-f", "../../../deploy/crds.yaml")
	program, err := filepath.Abs("../../../bin/image/" + runtime.GOARCH + "/weft")
	if err != nil {
		t.Fatal(err)
	}
	out := c.must(t, "exec", "control", program, "ipam", "import", "--from", "calico", "--calico-config", config,
		"--calico-policies", file)
	if want := fmt.Sprintf("%d policy objects written to %s", len(policies), file); !strings.Contains(out, want) {
		t.Fatalf("the import prints no %q:\n%s", want, out)
	}
	c.define(t, documents(t, calico.file(t, "manifests/calico.yaml"), crd)...)
	c.installWeft(t, "mode: cluster", "mode: cluster\n      addresses: pools")
	c.allocatesFromPools(t)
	before := c.policyPods(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c.enforces(t, string(text))
	c.released(t, before)
}

// putCalico writes an object to the cluster's etcd under the key of Calico's client.
func (c Cluster) putCalico(t *testing.T, text string) {
	t.Helper()
	var o struct {
		Kind     string
		Metadata struct{ Name, Namespace string }
	}
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	value, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	plural := strings.ToLower(o.Kind) + "s"
	if stem, is := strings.CutSuffix(plural, "ys"); is {
		plural = stem + "ies"
	}
	key := "/calico/resources/v3/projectcalico.org/" + filepath.Join(plural, o.Metadata.Namespace, o.Metadata.Name)
	body, err := json.Marshal(map[string][]byte{"key": []byte(key), "value": value})
	if err != nil {
		t.Fatal(err)
	}
	c.must(t, "exec", "control", "curl", "-sS", "-f", controlEtcd+"/v3/kv/put", "-d", string(body))
}

// TestWhereaboutsFiles: the kinds of Multus and whereabouts and the network of whereabouts' documentation as they are, by
// Multus' annotation. Pods on two nodes have addresses of its range and reach each other; an address that whereabouts has
// recorded for another pod is not allocated, and those of deleted pods are released.
func TestWhereaboutsFiles(t *testing.T) {
	weft(t)
	multus, whereabouts := multusSource(t), whereaboutsSource(t)
	c := newCluster(t, "wherab", "--cni", "none", "--no-dns")
	kinds := documents(t, multus.file(t, "deployments/multus-daemonset.yml"), crd)
	for _, name := range []string{"ippools", "nodeslicepools", "overlappingrangeipreservations"} {
		kinds = append(kinds, whereabouts.file(t, "doc/crds/whereabouts.cni.cncf.io_"+name+".yaml"))
	}
	c.define(t, kinds...)
	c.applyServerSide(t, `
apiVersion: whereabouts.cni.cncf.io/v1alpha1
kind: IPPool
metadata: {name: 192.168.2.224-28, namespace: kube-system}
spec: {range: 192.168.2.224/28, allocations: {"1": {id: "0123", podref: kube-system/old, ifname: net1}}}
`)
	c.installWeft(t)
	ns := c.namespace(t)
	c.apply(t, ns, documented(t, whereabouts.file(t, "README.md"), "name: whereabouts-conf"))
	c.apply(t, ns, podOn("one", "node1", "whereabouts-conf")+podOn("two", "node2", "whereabouts-conf"))
	addrs := map[string]string{}
	for _, p := range c.allReady(t, ns, 2, 3*time.Minute) {
		eventually(t, 30*time.Second, func() error {
			out := c.kubectl(t, "-n", ns, "get", "pod", p.Metadata.Name, "-o", "json")
			if err := json.Unmarshal([]byte(out), &p); err != nil {
				return err
			}
			if p.Metadata.Annotations["k8s.v1.cni.cncf.io/network-status"] == "" {
				return fmt.Errorf("%s has no network-status", p.Metadata.Name)
			}
			return nil
		})
		all := p.networks(t)
		if len(all) != 2 || all[1].Interface != "net1" || all[1].Name != ns+"/whereabouts-conf" || len(all[1].IPs) != 1 {
			t.Fatalf("%s has the networks %+v", p.Metadata.Name, all)
		}
		a, err := netip.ParseAddr(all[1].IPs[0])
		if err != nil || !netip.MustParsePrefix("192.168.2.224/28").Contains(a) || a == netip.MustParseAddr("192.168.2.225") {
			t.Errorf("%s has %s, want an address of the range that whereabouts has not given to another pod", p.Metadata.Name, a)
		}
		addrs[p.Metadata.Name] = a.String()
	}
	if addrs["one"] == addrs["two"] {
		t.Errorf("both pods have %s", addrs["one"])
	}
	c.expectConnection(t, ns, addrs["two"])
	c.kubectl(t, "-n", ns, "delete", "pod", "--all", "--timeout=120s")
	eventually(t, time.Minute, func() error {
		for _, node := range c.nodes(t) {
			if n := c.allocated(t, node); n > 0 {
				return fmt.Errorf("%s has %d allocated addresses without a pod", node, n)
			}
		}
		return nil
	})
}

// documented returns the example of a documentation in which there is a line.
func documented(t *testing.T, text, line string) string {
	t.Helper()
	blocks := strings.Split(text, "```")
	i := slices.IndexFunc(blocks, func(b string) bool { return strings.Contains(b, line) })
	if i < 0 {
		t.Fatalf("no example with %q", line)
	}
	return blocks[i]
}

// TestMultusFiles: Multus' manifest as it is, with its own programs: it installs its plugin, makes weft's configuration its
// delegate, and executes weft for the first network of pods and weft's plugins for the others. Once Multus is deleted, weft is
// the nodes' network again, and attaches what the annotation says.
func TestMultusFiles(t *testing.T) {
	weft(t)
	multus := multusSource(t)
	c := newCluster(t, "mulfil", "--cni", "none", "--no-dns")
	manifest := multus.file(t, "deployments/multus-daemonset.yml")
	c.define(t, documents(t, manifest, crd)...)
	c.installWeft(t, "--agent-plugins]", "--agent-plugins, --plugins]")
	c.kubectl(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=120s")
	c.must(t, "load", multusImage(t))
	c.applyServerSide(t, manifest)
	c.kubectl(t, "-n", "kube-system", "rollout", "status", "daemonset/kube-multus-ds", "--timeout=180s")
	for _, node := range c.nodes(t) {
		eventually(t, time.Minute, func() error { return c.delegatesToWeft(node) })
	}
	ns := c.namespace(t)
	c.apply(t, ns, moreNetworks)
	start := func(events int) { // so many of Multus, ever
		t.Helper()
		c.apply(t, ns, podOn("one", "node1", "wide, local")+podOn("two", "node2", "wide, local"))
		c.threeNetworks(t, ns)
		added := strings.Count(c.kubectl(t, "-n", ns, "get", "events", "--field-selector", "reason=AddedInterface,reportingComponent=multus", "-o", "name"), "event")
		if added != events {
			t.Errorf("there are %d events AddedInterface of Multus, want %d", added, events)
		}
		c.kubectl(t, "-n", ns, "delete", "pod", "--all", "--timeout=120s")
		c.nothingAttached(t)
	}
	start(6)
	c.kubectl(t, "-n", "kube-system", "delete", "daemonset/kube-multus-ds", "configmap/multus-cni-config", "serviceaccount/multus",
		"clusterrole/multus", "clusterrolebinding/multus", "--timeout=120s")
	c.kubectl(t, "-n", "kube-system", "wait", "--for=delete", "pod", "-l", "name=multus", "--timeout=120s")
	for _, node := range c.nodes(t) { // Multus leaves it
		c.must(t, "exec", node, "rm", "/etc/cni/net.d/00-multus.conflist", "/opt/cni/bin/multus")
	}
	start(6)
}

// multusImage writes the image of Multus' manifest, with the programs at the paths of Multus' own image.
func multusImage(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "../multus.sh").Output()
	if err != nil {
		t.Fatalf("multus.sh: %v", err)
	}
	dir := filepath.Dir(strings.TrimSpace(string(out)))
	file := filepath.Join(t.TempDir(), "multus.tar")
	args := []string{"run", "./test/kube/image", "-name", "ghcr.io/k8snetworkplumbingwg/multus-cni:snapshot", "-entrypoint", "/thin_entrypoint", "-o", file}
	for source, path := range map[string]string{
		"multus": "/usr/src/multus-cni/bin/multus", "passthru-cni": "/usr/src/multus-cni/bin/passthru",
		"install_multus": "/install_multus", "thin_entrypoint": "/thin_entrypoint",
	} {
		args = append(args, filepath.Join(dir, source)+"="+path)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = "../../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("image: %v%s", err, out)
	}
	return file
}

// delegatesToWeft returns an error if the node's first configuration is not the one that Multus made of weft's.
func (c Cluster) delegatesToWeft(node string) error {
	b, err := os.ReadFile(c.path(node, "00-multus.conflist"))
	if err != nil {
		return err
	}
	var f struct {
		Plugins []struct {
			Type      string
			Delegates []struct {
				Plugins []struct{ Type string }
			}
		}
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	if len(f.Plugins) != 1 || f.Plugins[0].Type != "multus" || len(f.Plugins[0].Delegates) != 1 ||
		len(f.Plugins[0].Delegates[0].Plugins) != 1 || f.Plugins[0].Delegates[0].Plugins[0].Type != "weft-cni" {
		return fmt.Errorf("%s has the configuration %s", node, b)
	}
	return nil
}

// threeNetworks checks that the pods one and two have weft's network, wide and local, and reach each other by the first two.
func (c Cluster) threeNetworks(t *testing.T, ns string) {
	t.Helper()
	c.allReady(t, ns, 2, 3*time.Minute)
	var two Pod
	eventually(t, 30*time.Second, func() error {
		for _, p := range c.pods(t, ns) {
			if p.Metadata.Annotations["k8s.v1.cni.cncf.io/network-status"] == "" {
				return fmt.Errorf("%s has no network-status", p.Metadata.Name)
			}
			all := p.networks(t)
			if len(all) != 3 || all[0].Name != "weft" || !all[0].Default || all[0].IPs[0] != p.Status.PodIP ||
				all[1].Name != ns+"/wide" || all[1].Interface != "net1" || all[2].Name != ns+"/local" || all[2].Interface != "net2" {
				return fmt.Errorf("%s has the networks %+v", p.Metadata.Name, all)
			}
			if p.Metadata.Name == "two" {
				two = p
			}
		}
		return nil
	})
	c.expectConnection(t, ns, two.Status.PodIP)
	c.expectConnection(t, ns, two.networks(t)[1].IPs[0])
}

// nothingAttached checks that no pod's interface and no address of one is left on any node.
func (c Cluster) nothingAttached(t *testing.T) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		for _, node := range c.nodes(t) {
			if got := c.attachments(t, node); got != "weft_attachments 0" {
				return fmt.Errorf("%s has %s", node, got)
			}
			if n := c.allocated(t, node); n > 0 {
				return fmt.Errorf("%s has %d allocated addresses without a pod", node, n)
			}
			if links := c.must(t, "exec", node, "ip", "-o", "link", "show"); strings.Contains(links, " master e2e0 ") {
				return fmt.Errorf("%s has ports without a pod: %s", node, links)
			}
		}
		return nil
	})
}
