// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// pathKeys are the keys by which a configuration has the agent, which is root, read or write files of the node, wherever in it they
// are: host-local's and tuning's directory, host-local's resolver, flannel's subnet file, whereabouts' flat file.
func pathKeys() []string {
	return []string{"dataDir", "resolvConf", "subnetFile", "configuration_path"}
}

// checkPaths refuses a configuration whose author may not be trusted with the node's files, where it names one that is not below the
// permitted ones.
func checkPaths(raw json.RawMessage, permitted []string) error {
	var whole any
	if json.Unmarshal(raw, &whole) != nil {
		return nil // whoever parses the whole tells what is wrong
	}
	return checkValue(whole, "", permitted)
}

func checkValue(v any, at string, permitted []string) error {
	switch v := v.(type) {
	case []any:
		for i, x := range v {
			if err := checkValue(x, at+"["+strconv.Itoa(i)+"]", permitted); err != nil {
				return err
			}
		}
	case map[string]any:
		for key, x := range v {
			field := strings.TrimPrefix(at+"."+key, ".")
			path, text := x.(string)
			// Decoding takes keys in any case.
			if !text || path == "" || !slices.ContainsFunc(pathKeys(), func(k string) bool { return strings.EqualFold(k, key) }) {
				if err := checkValue(x, field, permitted); err != nil {
					return err
				}
				continue
			}
			if !below(path, permitted) {
				return model.Faultf(model.CodeInvalidConf, "leave it out, choose a path below one of these, or have the node's administrator add it to network.permitPaths of the agent's configuration",
					"%s %q: a NetworkAttachmentDefinition may name files of the node below %s only", field, path, strings.Join(permitted, ", "))
			}
		}
	}
	return nil
}

// below tells whether a path is one of those that are permitted, or below one.
func below(path string, permitted []string) bool {
	if !filepath.IsAbs(path) {
		return false
	}
	path = filepath.Clean(path)
	return slices.ContainsFunc(permitted, func(p string) bool {
		p = filepath.Clean(p)
		return path == p || strings.HasPrefix(path, strings.TrimSuffix(p, "/")+"/")
	})
}
