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

// pathKeys are the keys by which a configuration has the agent, which is root, read or write files of the node,
// wherever in it they are: host-local's and tuning's directory, host-local's resolver, flannel's subnet file,
// whereabouts' flat file. The socket of dhcp's daemon is what a plugin of another vendor has weft's or anybody's dhcp
// speak to, as root; the agent itself asks no daemon.
func pathKeys() []string {
	return []string{"dataDir", "resolvConf", "subnetFile", "configuration_path", "daemonSocketPath"}
}

// checkPaths refuses a configuration whose author may not be trusted with the node's files, where it names one that is
// not below the permitted ones. It looks at every key, also where one stands twice: decoders differ in which of them
// they take, and some join both.
func checkPaths(raw json.RawMessage, permitted []string) error {
	if !json.Valid(raw) { // nor deeper than decoders go
		return nil // whoever parses the whole tells what is wrong
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
		return model.Faultf(
			model.CodeInvalidConf,
			"leave it out, choose a path below one of these, or have the node's administrator add it to network.permitPaths of the agent's configuration",
			"%s %q: a NetworkAttachmentDefinition may name files of the node below %s only", at, path,
			strings.Join(w.permitted, ", "))
	}
	_, err = w.Token() // what ends it
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

// clean is a path in the form in which paths are compared: /var/run has been another name of /run for as long as there
// are both.
func clean(path string) string {
	path = filepath.Clean(path)
	if rest, is := strings.CutPrefix(path, "/var/run"); is && (rest == "" || rest[0] == '/') {
		return "/run" + rest
	}
	return path
}
