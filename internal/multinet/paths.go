// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// pathKeys returns the keys by which a configuration makes the agent, which is root, read or write files of the node:
// host-local's and tuning's directory, host-local's resolver, flannel's subnet file, whereabouts' flat file. The socket
// of dhcp's daemon is what a dhcp plugin connects to, as root; the agent itself calls no daemon.
func pathKeys() []string {
	return []string{"dataDir", "resolvConf", "subnetFile", "configuration_path", "daemonSocketPath"}
}

// checkPaths rejects a configuration of an untrusted author that names a path which is not below the permitted ones. It
// checks every key, duplicates too: decoders differ in which of them they use, and some merge both.
func checkPaths(raw json.RawMessage, permitted []string) error {
	if !json.Valid(raw) { // also limits the depth
		return nil // the full decoder reports errors
	}
	w := pathWalk{json.NewDecoder(bytes.NewReader(raw)), permitted}
	return w.value("", "")
}

// pathWalk reads a configuration token by token.
type pathWalk struct {
	*json.Decoder
	permitted []string
}

func (w pathWalk) value(at, key string) error {
	t, err := w.Token()
	if err != nil {
		return err
	}
	switch t {
	case json.Delim('{'):
		for w.More() {
			name, err := w.Token()
			if err != nil {
				return err
			}
			key := fmt.Sprint(name)
			if err := w.value(strings.TrimPrefix(at+"."+key, "."), key); err != nil {
				return err
			}
		}
	case json.Delim('['):
		for i := 0; w.More(); i++ {
			if err := w.value(at+"["+strconv.Itoa(i)+"]", ""); err != nil {
				return err
			}
		}
	default:
		path, text := t.(string)
		// Decoding takes keys in any case.
		named := slices.ContainsFunc(pathKeys(), func(k string) bool { return strings.EqualFold(k, key) })
		if !text || path == "" || !named || below(path, w.permitted) {
			return nil
		}
		return model.Errorf(
			model.CodeInvalidConf,
			"leave it out, choose a path below one of these, or add it to network.permitPaths of the agent's configuration",
			"%s %q: a NetworkAttachmentDefinition may name files of the node below %s only", at, path,
			strings.Join(w.permitted, ", "))
	}
	_, err = w.Token() // the closing delimiter
	return err
}

// below reports whether a path is one of those that are permitted, or below one.
func below(path string, permitted []string) bool {
	if !filepath.IsAbs(path) {
		return false
	}
	path = clean(path)
	return slices.ContainsFunc(permitted, func(p string) bool {
		p = clean(p)
		return path == p || strings.HasPrefix(path, strings.TrimSuffix(p, "/")+"/")
	})
}

// clean returns a path in canonical form, with /run for /var/run.
func clean(path string) string {
	path = filepath.Clean(path)
	if rest, is := strings.CutPrefix(path, "/var/run"); is && (rest == "" || rest[0] == '/') {
		return "/run" + rest
	}
	return path
}
