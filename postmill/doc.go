// Package postmill joins Watermill with Postroom.
package postmill
