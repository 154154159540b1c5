// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/vm/manifest"
)

// TestDirect: KubeVirt's configuration of the direct binding is consistent: the definition is one that the plugin
// understands, and a manifest that names the binding gets a tap.
func TestDirect(t *testing.T) {
	var definition struct {
		Metadata struct{ Name, Namespace string }
		Spec     struct{ Config string }
	}
	readInto(t, "kubevirt/weft-direct.yaml", &definition)
	network, err := cni.ParseNetwork([]byte(definition.Spec.Config))
	if err != nil {
		t.Fatal(err)
	}
	if warnings := cni.Lint(network, plugin.Builtin(), nil); len(warnings) > 0 {
		t.Errorf("the definition: %v", warnings)
	}
	for _, p := range network.Plugins {
		if err := plugin.Validate(plugin.Builtin()[p.Type], p); err != nil {
			t.Error(err)
		}
	}
	var patch struct {
		Spec struct {
			Configuration struct {
				Network struct {
					Binding map[string]struct {
						NetworkAttachmentDefinition, DomainAttachmentType string
						Migration                                         *struct{ Method string }
					}
				}
			}
		}
	}
	readInto(t, "kubevirt/binding.yaml", &patch)
	binding := patch.Spec.Configuration.Network.Binding["weft-direct"]
	if binding.NetworkAttachmentDefinition != definition.Metadata.Namespace+"/"+definition.Metadata.Name ||
		binding.Migration == nil {
		t.Errorf("the binding is %+v", binding)
	}
	text, err := os.ReadFile("../examples/vm/direct.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for how, bindings := range map[model.VMBinding]map[string]string{
		model.VMTap: {"weft-direct": binding.DomainAttachmentType}, model.VMDirect: nil,
	} {
		vm, err := manifest.Read(text, manifest.Options{Bindings: bindings})
		if err != nil || vm.Interfaces[0].Binding != how {
			t.Errorf("the machine is %+v (%v), want one bound by %s", vm, err, how)
		}
	}
	doc, err := os.ReadFile("../docs/reference/direct-binding.md")
	if err != nil {
		t.Fatal(err)
	}
	_, want, _ := strings.Cut(string(file(t, "kubevirt/binding.yaml")), "spec:\n")
	if !strings.Contains(string(doc), want) {
		t.Errorf("docs/reference/direct-binding.md does not show the binding:\n%s", want)
	}
}

func file(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func readInto(t *testing.T, path string, into any) {
	t.Helper()
	if err := yaml.Unmarshal(file(t, path), into); err != nil {
		t.Fatal(err)
	}
}
