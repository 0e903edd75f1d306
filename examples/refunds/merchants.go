package main

import (
	"context"
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
)

// merchants are those who may charge and refund, by a digest of their tokens: how long a
// look-up takes says nothing of a token then. A service has them in its database.
var merchants = map[[sha256.Size]byte]string{
	sha256.Sum256([]byte("ann-token")): "ann",
	sha256.Sum256([]byte("bob-token")): "bob",
}

// tokens are those of the merchants, for whoever wants to try.
func tokens() []string {
	var all []string
	for _, name := range merchants {
		all = append(all, name+"-token")
	}
	slices.Sort(all)
	return all
}

type merchantKey struct{}

// authenticated finds out who sends a request, and answers 401 where it is nobody.
func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		merchant, known := merchants[sha256.Sum256([]byte(token))]
		if !strings.EqualFold(scheme, "Bearer") || !known {
			w.Header().Set("WWW-Authenticate", "Bearer")
			reply(w, errNobody.Status, "application/problem+json", errNobody)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), merchantKey{}, merchant)))
	})
}

// merchantOf is who sends a request. Keys of one merchant mean nothing to another.
func merchantOf(r *http.Request) (string, error) {
	merchant, ok := r.Context().Value(merchantKey{}).(string)
	if !ok {
		return "", errNobody
	}
	return merchant, nil
}
