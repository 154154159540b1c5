// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestDirect: in a pod that is attached as KubeVirt requests, with weft's NetworkAttachmentDefinition, KubeVirt finds
// the taps of the plugin weft-direct, and generates the same libvirt XML as weft.
func TestDirect(t *testing.T) {
	file := writeVMI(
		t,
		"[{name: default, binding: {name: weft-direct}}, {name: blue, binding: {name: weft-direct}, bootOrder: 1, state: down}]",
		"[{name: default, pod: {}}, {name: blue, multus: {networkName: blue}}]", "", "")
	p := newPod(t, "10.244.0.10/24", "fd00:244::10/64")
	p.link(t, blue, "02:00:00:00:00:09", "10.7.0.5/24")
	for _, network := range p.attach(t, file) {
		t.Logf("%s is bound by weft-direct", network)
	}
	before := p.state(t)
	theirs := p.kubevirt(t, file)
	if d := cmp.Diff(before, p.state(t)); d != "" {
		t.Errorf("KubeVirt's first phase changes the pod (-before +after):\n%s", d)
	}
	ours := must(t, program("weft"), "vm", "xml", "--nic",
		"default,mtu=1450,mac="+podMAC+",address=10.244.0.10/24,gateway="+gateway4,
		"--nic", "blue,mtu=1450,mac=02:00:00:00:00:09,address=10.7.0.5/24", file)
	if d := cmp.Diff(nics(t, theirs), nics(t, ours)); d != "" {
		t.Errorf("libvirt XML (-KubeVirt +weft):\n%s", d)
	}
	for i, tap := range []string{"tap0", "tap" + strings.TrimPrefix(blue, "pod")} {
		if got := nics(t, theirs)[i].Target.Dev; got != tap || before.Links[tap].Kind != "tun" ||
			before.Links[tap].Tap["user"] != "qemu" {
			t.Errorf("KubeVirt uses %s; the pod has %+v", got, before.Links[tap])
		}
	}
}

// attach calls the plugin for each binding in the annotation that KubeVirt sets on the pod, as Multus would.
func (p pod) attach(t *testing.T, file string) (networks []string) {
	t.Helper()
	var asked []struct {
		Name string         `json:"name"`
		Args map[string]any `json:"cni-args"`
	}
	if err := json.Unmarshal([]byte(must(t, program("kubevirt-net"), "annotate", file)), &asked); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../deploy/kubevirt/weft-direct.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var definition struct {
		Metadata struct{ Name string }
		Spec     struct{ Config string }
	}
	if err := yaml.Unmarshal(text, &definition); err != nil {
		t.Fatal(err)
	}
	for i, a := range asked {
		if a.Name != definition.Metadata.Name {
			continue
		}
		conf := map[string]any{}
		if err := json.Unmarshal([]byte(definition.Spec.Config), &conf); err != nil {
			t.Fatal(err)
		}
		conf["args"] = map[string]any{"cni": a.Args}
		conf["prevResult"] = map[string]any{"cniVersion": conf["cniVersion"], "interfaces": []any{}}
		in, err := json.Marshal(conf)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program("cni/weft-direct"))
		cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID=truth", "CNI_NETNS="+p.netns,
			"CNI_IFNAME=net"+itoa(i+1),
			"CNI_PATH="+filepath.Dir(program("cni/x")),
			"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=virt-launcher-vm1-x2x4z;K8S_POD_NAMESPACE=shop")
		cmd.Stdin = strings.NewReader(string(in))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("weft-direct for %v: %v\n%s", a.Args, err, out)
		}
		networks = append(networks, a.Args["logicNetworkName"].(string))
	}
	return networks
}
