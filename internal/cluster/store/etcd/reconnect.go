// SPDX-License-Identifier: Apache-2.0

package etcd

// drop closes a failed connection; the next one is to another endpoint, if there is one.
func (r *Registry) drop(c *connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == c {
		r.conn = nil
		r.next++
		_ = c.Close()
	}
}

// Reconnect closes the connection; the next request makes a new one. Requests in progress fail and are retried.
func (r *Registry) Reconnect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil {
		_ = r.conn.Close()
		r.conn = nil
	}
}

// Close closes the connections. Leases stay.
func (r *Registry) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		return nil
	}
	err := r.conn.Close()
	r.conn = nil
	return err
}
