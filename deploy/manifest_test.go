// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/node/tunnel/process"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// find reads the objects of a kind out of a manifest, with every key known.
func find[T any](t *testing.T, file, kind string) []T {
	t.Helper()
	var all []T
	for _, doc := range documents(t, string(read(t, file))) {
		if parse(t, doc)["kind"] != kind {
			continue
		}
		var o T
		if err := yaml.UnmarshalStrict([]byte(doc), &o); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, o)
	}
	if len(all) == 0 {
		t.Fatalf("%s: no %s", file, kind)
	}
	return all
}

// TestConfigMap: what the manifests configure is a configuration, and finds what it names among the pod's mounts.
func TestConfigMap(t *testing.T) {
	for file, mode := range map[string]config.Mode{
		"weft.yaml": config.ModeCluster, "weft-multus.yaml": config.ModeMultus, "weft-policy.yaml": config.ModePolicy, "weft-flannel.yaml": config.ModeFlannel,
	} {
		c, err := config.Parse([]byte(find[corev1.ConfigMap](t, file, "ConfigMap")[0].Data["weft.yaml"]))
		if err != nil || c.Network.Mode != mode || !c.Kubernetes.InCluster {
			t.Errorf("%s: %+v, %v", file, c, err)
		}
		if at, err := netip.ParseAddrPort(c.Metrics.Address); err != nil || !at.Addr().IsLoopback() {
			t.Errorf("%s: metrics are served at %q: every pod can read them", file, c.Metrics.Address)
		}
		agent := find[appsv1.DaemonSet](t, file, "DaemonSet")[0].Spec.Template.Spec.Containers[0]
		for _, path := range []string{
			"/etc/cni", c.Install.BinDir, c.Install.HostRoot, "/run", "/var/lib/cni", "/var/run/netns",
			filepath.Dir(c.Flannel.NetConf),
		} {
			if !slices.ContainsFunc(agent.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == path }) {
				t.Errorf("%s: %s is not mounted", file, path)
			}
		}
		if dir := filepath.Dir(plugin.CalicoMTUFile); !slices.ContainsFunc(agent.VolumeMounts,
			func(m corev1.VolumeMount) bool { return m.MountPath == dir && !m.ReadOnly }) {
			t.Errorf("%s: network.mtuFile cannot be written where Calico's plugin reads it: %s", file, dir)
		}
	}
}

// TestDaemonSet: the pod is as docs/tasks/kubernetes.md describes it.
func TestDaemonSet(t *testing.T) {
	for file := range agents() {
		pod := find[appsv1.DaemonSet](t, file, "DaemonSet")[0].Spec.Template.Spec
		if pod.PriorityClassName != "system-node-critical" || !pod.HostNetwork ||
			pod.Tolerations[0].Operator != corev1.TolerationOpExists {
			t.Errorf("%s: %+v", file, pod)
		}
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			s := c.SecurityContext
			if s.Privileged != nil && *s.Privileged || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
				len(s.Capabilities.Add) == 0 {
				t.Errorf("%s: %s: %+v", file, c.Name, s)
			}
			if c.Resources.Requests.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() || len(c.Resources.Limits) > 0 {
				t.Errorf("%s: %s: %+v", file, c.Name, c.Resources)
			}
		}
		if pod.Containers[0].ReadinessProbe.HTTPGet.Path != "/readyz" {
			t.Errorf("%s: %+v", file, pod.Containers[0].ReadinessProbe)
		}
		mounted := map[string]bool{}
		for _, m := range pod.Containers[0].VolumeMounts {
			mounted[m.Name] = true
		}
		for _, v := range pod.Volumes {
			if !mounted[v.Name] {
				t.Errorf("%s: volume %s is not mounted", file, v.Name)
			}
		}
	}
}

// TestTunnels: the process that outlives agents is not replaced with them, listens where they look for it, and has the
// rights for its devices and nothing else.
func TestTunnels(t *testing.T) {
	d := find[appsv1.DaemonSet](t, "weft-tunnels.yaml", "DaemonSet")[0]
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	agent, err := config.Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(agent.StateDir, process.SocketName)
	if d.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType || !pod.HostNetwork ||
		*pod.AutomountServiceAccountToken || pod.PriorityClassName != "system-node-critical" ||
		!slices.Contains(c.Args, "--socket="+socket) || !slices.Contains(c.Args, "--listen") {
		t.Errorf("%+v", d.Spec)
	}
	s := c.SecurityContext
	if s.Privileged != nil || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation ||
		!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
		!slices.Equal(s.Capabilities.Add, []corev1.Capability{"NET_ADMIN", "NET_RAW", "NET_BIND_SERVICE", "DAC_OVERRIDE"}) {
		t.Errorf("%+v", s)
	}
	mounts := map[string]bool{}
	for _, m := range c.VolumeMounts {
		mounts[m.MountPath] = !m.ReadOnly
	}
	want := map[string]bool{
		filepath.Dir(agent.StateDir): true, filepath.Dir(agent.Network.WireguardKeyFile): false, "/dev/net": true,
	}
	if !maps.Equal(mounts, want) || len(pod.Volumes) != len(want) {
		t.Errorf("mounts, and whether they are writable: %v, want %v", mounts, want)
	}
	for file := range agents() {
		for _, other := range find[appsv1.DaemonSet](t, file, "DaemonSet") {
			if other.Spec.Selector.MatchLabels["app.kubernetes.io/name"] == d.Spec.Template.Labels["app.kubernetes.io/name"] {
				t.Errorf("%s: %s selects the pods of %s", file, other.Name, d.Name)
			}
		}
	}
}

// TestMounts: the node's files are written where another vendor's plugins are executed among them, and else only where
// the agent, or plugins, have something to write: there are mounts of their own.
func TestMounts(t *testing.T) {
	for file := range agents() {
		writable := map[string]bool{}
		for _, m := range find[appsv1.DaemonSet](t, file, "DaemonSet")[0].Spec.Template.Spec.Containers[0].VolumeMounts {
			writable[m.MountPath] = !m.ReadOnly
		}
		for path, want := range map[string]bool{
			"/host": file == "weft-multus.yaml" || file == "weft-policy.yaml", "/host/var/lib/cni": true, "/etc/cni": true, "/var/lib/cni": true, "/run": true,
			"/var/run/netns":           true,
			"/var/run/k8s.cni.cncf.io": true, "/opt/cni/bin": false, "/etc/weft": false, "/var/lib/kubelet/pod-resources": false,
		} {
			if is, there := writable[path]; !there || is != want {
				t.Errorf("%s: %s is there: %v, writable: %v, want %v", file, path, there, is, want)
			}
		}
	}
}

// TestController: the Deployment is as docs/tasks/kubernetes.md describes it: small, without any right on its node.
func TestController(t *testing.T) {
	for file := range agents() {
		d := find[appsv1.Deployment](t, file, "Deployment")[0]
		pod := d.Spec.Template.Spec
		c := pod.Containers[0]
		s := c.SecurityContext
		if *d.Spec.Replicas != 1 || pod.ServiceAccountName != "weft-controller" || !*pod.SecurityContext.RunAsNonRoot ||
			!*s.ReadOnlyRootFilesystem ||
			*s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
			len(s.Capabilities.Add) > 0 {
			t.Errorf("%s: %+v", file, d.Spec)
		}
		if c.Resources.Requests.Memory().Cmp(resource.MustParse("32Mi")) != 0 ||
			c.Resources.Requests.Cpu().Cmp(resource.MustParse("5m")) != 0 || len(c.Resources.Limits) > 0 {
			t.Errorf("%s: %+v", file, c.Resources)
		}
		for _, v := range pod.Volumes {
			if v.HostPath != nil {
				t.Errorf("%s: volume %s is of the node", file, v.Name)
			}
		}
	}
}

// TestRights: no rule says everything, and what an agent and the controller may write are short lists.
func TestRights(t *testing.T) {
	want := map[string][]string{
		"weft": {
			"pods/status", "nodes/status", "events", "ipamclaims/status", "addresspoolrequests", "addresspools/status",
			"addressclaims/status", "addressclaims", "addressblocks",
			"nodeendpoints", "flowlisteners", "addressmoves", "clusternetworkpolicies/status",
		},
		"weft-controller": {
			"addresspools", "services/status", "addresspools/status", "addressblocks/status", "addressclaims/status", "events", "addresspoolrequests", "addressblocks",
			"addressclaims",
		},
	}
	for _, role := range find[rbacv1.ClusterRole](t, "weft.yaml", "ClusterRole") {
		var writes []string
		for _, rule := range role.Rules {
			for _, word := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs) {
				if word == "*" || word == "secrets" || word == "configmaps" || word == "escalate" || word == "impersonate" {
					t.Errorf("%s: %+v", role.Name, rule)
				}
			}
			for _, verb := range rule.Verbs {
				if verb != "get" && verb != "list" && verb != "watch" {
					writes = append(writes, rule.Resources...)
					break
				}
			}
		}
		if !slices.Equal(want[role.Name], writes) {
			t.Errorf("%s writes %q, want %q", role.Name, writes, want[role.Name])
		}
	}
}
