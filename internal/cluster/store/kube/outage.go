// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"log/slog"
	"net/url"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/weft-net/weft/internal/cluster/store"
)

// outage logs once that a kind cannot be watched, and once that it can again.
type outage struct {
	log *slog.Logger
	mu  sync.Mutex
	bad map[string]string // the logged reason, by resource
}

// note handles the outcome of a request. A new reason is logged; a different port or timeout in the text is none.
func (o *outage) note(kind store.Kind, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bad == nil {
		o.bad = map[string]string{}
	}
	was, had := o.bad[qualified(kind)]
	if err == nil {
		if had {
			delete(o.bad, qualified(kind))
			o.log.Info("kind is watched again", "resource", qualified(kind))
		}
		return
	}
	why := "network"
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		why = string(status.Status().Reason)
	}
	if had && was == why {
		return
	}
	o.bad[qualified(kind)] = why
	var asked *url.Error
	if errors.As(err, &asked) {
		err = asked.Err // without the long URL
	}
	o.log.Warn("kind cannot be watched; the known objects stay in force", "resource", qualified(kind), "err", err)
}
