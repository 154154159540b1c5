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

// confText is a network configuration: a file, or spec.config of an object in the file.
type confText struct {
	file string // where the text is from, for messages
	text []byte
	// object is the NetworkAttachmentDefinition that has the configuration; zero for a plain file.
	object model.NetworkAttachment
}

// confsIn returns the configurations in a file: the file itself, or those of its NetworkAttachmentDefinitions.
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
			return nil, model.Errorf(model.CodeInvalidConf, "name a CNI configuration, or NetworkAttachmentDefinitions",
				"configuration %s: %s has no network configuration", file, o.Key)
		}
		n, err := o.NetworkAttachment()
		if err != nil {
			return nil, fmt.Errorf("configuration %s: %w", file, err)
		}
		out = append(out, confText{file: fmt.Sprintf("%s: %s", file, o.Key), text: []byte(n.Config), object: n})
	}
	return out, nil
}

// manifestLike reports whether the text is a Kubernetes manifest, as JSON or YAML, rather than a CNI configuration.
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

// uncommented removes comment lines.
func uncommented(doc []byte) []byte {
	lines := bytes.Split(doc, []byte("\n"))
	return bytes.Join(
		slices.DeleteFunc(lines, func(l []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(l), []byte("#")) }),
		[]byte("\n"),
	)
}

// validate checks the configuration against the plugins on this host.
func (c confText) validate(binDirs []string) validation {
	host := cni.Environment{
		Name: c.object.Name, Dirs: binDirs, Attached: c.object.Name != "",
		Find: func(program string) bool {
			return slices.ContainsFunc(binDirs, func(dir string) bool {
				st, err := os.Stat(filepath.Join(dir, program))
				return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
			})
		},
	}
	if c.object.Name != "" {
		host.Version = "0.3.1" // the version of a NetworkAttachmentDefinition without cniVersion
	}
	planners, ipams := plugin.InAgent(), builtin.Readers(os.ReadFile)
	var builtin []string
	for typ := range planners {
		builtin = append(builtin, typ)
		if plugin.Builtin()[typ] == nil {
			host.NeedAgent = append(host.NeedAgent, typ)
		}
	}
	for typ := range ipams {
		builtin = append(builtin, typ)
	}
	host.NeedAgent = append(host.NeedAgent, sharedTypes()...)
	slices.Sort(builtin)
	if c.object.Name != "" && len(c.text) == 0 {
		report := cni.Report{Network: c.object.Name, Errors: []cni.Problem{}, Warnings: []cni.Warning{{
			Field: "spec.config", Msg: "spec.config is empty: the configuration is the file of the network " + c.object.Name +
				" on each node",
		}}}
		return validation{File: c.file, Report: report}
	}
	report := cni.ExamineWith(c.text, host, planners, ipams)
	report.CheckTypes(host, builtin)
	return validation{File: c.file, Report: report}
}
