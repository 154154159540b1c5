// SPDX-License-Identifier: Apache-2.0

package whereabouts

import (
	"encoding/json"
	"errors"
	"io/fs"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// flatFiles are the files from which whereabouts reads keys that configurations omit.
func flatFiles(first string) []string {
	out := []string{
		"/etc/kubernetes/cni/net.d/whereabouts.d/whereabouts.conf", "/etc/cni/net.d/whereabouts.d/whereabouts.conf",
		"/host/etc/kubernetes/cni/net.d/whereabouts.d/whereabouts.conf", "/host/etc/cni/net.d/whereabouts.d/whereabouts.conf",
	}
	if first != "" {
		return append([]string{first}, out...)
	}
	return out
}

// Complete returns the ipam section with the missing options that whereabouts' flat file has, if the section is
// whereabouts'. readFile reads a file; nil means that it does not exist.
func Complete(section json.RawMessage, readFile func(string) ([]byte, error)) (json.RawMessage, error) {
	var head struct {
		Type string `json:"type"`
		Path string `json:"configuration_path"`
	}
	if err := ipam.Decode("ipam", section, &head); err != nil {
		return nil, err
	}
	if head.Type != Type || readFile == nil {
		return section, nil
	}
	for _, path := range flatFiles(head.Path) {
		b, err := readFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, model.Errorf(model.CodeIO, "make it readable, or delete it",
				"whereabouts' configuration file: %w", err)
		}
		flat, fields := map[string]json.RawMessage{}, map[string]json.RawMessage{}
		if err := json.Unmarshal(b, &flat); err != nil {
			return nil, model.Errorf(model.CodeDecode, "correct the file", "whereabouts' configuration file %s: %w", path, err)
		}
		if err := ipam.Decode("ipam", section, &fields); err != nil {
			return nil, err
		}
		for k, v := range flat {
			if _, has := fields[k]; !has {
				fields[k] = v
			}
		}
		return json.Marshal(fields)
	}
	return section, nil
}
