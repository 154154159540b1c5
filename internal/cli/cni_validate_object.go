// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/ipam/builtin"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// confText is a network configuration as it stands in a file, or in an object in it.
type confText struct {
	file string // where it is, for people
	text []byte
	// object, unless it is zero, is the NetworkAttachmentDefinition around it.
	object model.NetworkAttachment
}

// confsIn finds the configurations in a file: the file itself, or those of the NetworkAttachmentDefinitions in it.
func confsIn(file string, b []byte) ([]confText, error) {
	if !manifestLike(b) {
		return []confText{{file: file, text: b}}, nil
	}
	var out []confText
	for _, doc := range bytes.Split(append([]byte{'\n'}, b...), []byte("\n---")) {
		if len(bytes.TrimSpace(uncommented(doc))) == 0 {
			continue
		}
		doc, err := yaml.YAMLToJSONStrict(doc)
		var o store.Object
		if err == nil {
			o, err = store.NewObject(doc)
		}
		if err != nil {
			return nil, fmt.Errorf("configuration %s: %w", file, err)
		}
		if !o.Key.Of(store.NetworkAttachments()) {
			return nil, model.Faultf(model.CodeInvalidConf, "give a CNI configuration, or NetworkAttachmentDefinitions",
				"configuration %s: %s holds none", file, o.Key)
		}
		n, err := o.NetworkAttachment()
		if err != nil {
			return nil, fmt.Errorf("configuration %s: %w", file, err)
		}
		out = append(out, confText{file: fmt.Sprintf("%s: %s", file, o.Key), text: []byte(n.Config), object: n})
	}
	return out, nil
}

// manifestLike reports whether a text is an object of Kubernetes, as JSON or YAML, and no CNI configuration.
func manifestLike(b []byte) bool {
	trimmed := bytes.TrimSpace(b)
	if len(trimmed) == 0 {
		return false
	}
	if trimmed[0] != '{' {
		return bytes.Contains(b, []byte("kind:"))
	}
	var o struct{ Kind, APIVersion string }
	return json.Unmarshal(b, &o) == nil && o.Kind != "" && o.APIVersion != ""
}

// uncommented leaves out lines that are comments.
func uncommented(doc []byte) []byte {
	lines := bytes.Split(doc, []byte("\n"))
	return bytes.Join(
		slices.DeleteFunc(lines, func(l []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(l), []byte("#")) }),
		[]byte("\n"),
	)
}

// examine asks everything that can be known of a configuration on this machine.
func (c confText) examine(binDirs []string) examined {
	surroundings := cni.Surroundings{
		Name: c.object.Name, Dirs: binDirs, Attached: c.object.Name != "",
		Find: func(program string) bool {
			return slices.ContainsFunc(binDirs, func(dir string) bool {
				st, err := os.Stat(filepath.Join(dir, program))
				return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
			})
		},
	}
	if c.object.Name != "" {
		surroundings.Version = "0.3.1" // what a network without a version is attached as
	}
	planners, ipams := plugin.InAgent(), builtin.Readers(os.ReadFile)
	var builtin []string
	for typ := range planners {
		builtin = append(builtin, typ)
		if plugin.Builtin()[typ] == nil {
			surroundings.NeedAgent = append(surroundings.NeedAgent, typ)
		}
	}
	for typ := range ipams {
		builtin = append(builtin, typ)
	}
	surroundings.NeedAgent = append(surroundings.NeedAgent, sharedTypes()...)
	slices.Sort(builtin)
	if c.object.Name != "" && len(c.text) == 0 {
		report := cni.Report{Network: c.object.Name, Errors: []cni.Problem{}, Warnings: []cni.Warning{{
			Field: "spec.config", Msg: "spec.config is empty: the configuration is the file of the network " + c.object.Name +
				" on each node",
		}}}
		return examined{File: c.file, Report: report}
	}
	report := cni.ExamineIn(c.text, surroundings, planners, ipams)
	report.Look(surroundings, builtin)
	return examined{File: c.file, Report: report}
}
