// SPDX-License-Identifier: Apache-2.0

// Package netconf reads network configurations from files: CNI configurations, and those of the
// NetworkAttachmentDefinitions in a manifest.
package netconf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// Text is a network configuration: a file, or spec.config of an object in the file.
type Text struct {
	Source string // where the text is from, for messages
	Conf   []byte
	// Object is the NetworkAttachmentDefinition that has the configuration; zero for a plain file.
	Object model.NetworkAttachment
}

// In returns the configurations in a file: the file itself, or those of its NetworkAttachmentDefinitions.
func In(file string, b []byte) ([]Text, error) {
	if !manifestLike(b) {
		return []Text{{Source: file, Conf: b}}, nil
	}
	var out []Text
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
		out = append(out, Text{Source: fmt.Sprintf("%s: %s", file, o.Key), Conf: []byte(n.Config), Object: n})
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
