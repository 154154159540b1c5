// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// leastMinor is the least version of Kubernetes, 1.leastMinor, whose tokens always name the node of the pod that they
// are of (authentication.kubernetes.io/node-name). Admission goes by that.
const leastMinor = 32

// versionAgain is when a server that did not answer is asked for its version again.
const versionAgain = 10 * time.Second

// AwaitVersion ends with an error where the server is too old to tell whose node a token is: then nothing would keep a
// node's token from writing what is another node's. While the server does not answer it is asked again; no pod needs
// that.
func (s *Store) AwaitVersion(ctx context.Context, after func(time.Duration) <-chan time.Time) error {
	for {
		err := s.CheckVersion(ctx)
		var f *model.Fault
		if err == nil || errors.As(err, &f) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-after(versionAgain):
		}
	}
}

// CheckVersion asks the server for its version. The error is a model.Fault where the version is too old, or cannot be
// understood; any other one is that the server did not answer.
func (s *Store) CheckVersion(ctx context.Context) error {
	raw, err := ask(ctx, patient, s.clients.work.Get().AbsPath("/version"))
	if err != nil {
		return fmt.Errorf("version of the API server: %w", err)
	}
	var is struct{ Major, Minor, GitVersion string }
	if err := json.Unmarshal(raw, &is); err != nil {
		return model.Faultf(model.CodeInvalidConf, "is that an API server?", "version of the API server: %w", err)
	}
	major, err := strconv.Atoi(is.Major)
	minor, err2 := strconv.Atoi(strings.TrimRight(is.Minor, "+"))
	if err != nil || err2 != nil || major < 1 || major == 1 && minor < leastMinor {
		return model.Faultf(model.CodeInvalidConf, fmt.Sprintf("upgrade Kubernetes to 1.%d or newer", leastMinor),
			"the API server is of version %q (%s.%s): before 1.%d a token does not name its node, and nothing keeps a node from writing what is another node's",
			is.GitVersion, is.Major, is.Minor, leastMinor)
	}
	return nil
}
